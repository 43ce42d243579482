"""The order of keys, against sorting them."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from filer.stores.local.folder_walk import walk_folder

# Folders end in `d`, files do not, so that no name is both.
NAME = st.text("ab-.0é\U0001f600", min_size=1, max_size=2).filter(lambda name: name[0] != ".")
KEY = st.tuples(st.lists(NAME.map(lambda name: f"{name}d"), max_size=2), NAME).map(
    lambda key: "/".join([*key[0], key[1]])
)


@given(st.lists(KEY, unique=True, max_size=10), st.data())
def test_walk_is_sorting_and_filtering(keys: list[str], data: st.DataObject) -> None:
    cuts = sorted({key[:length] for key in keys for length in range(len(key) + 1)} | {""})
    prefix = data.draw(st.sampled_from(cuts))
    after = data.draw(st.sampled_from([*cuts, *(f"{cut}!" for cut in cuts), *(f"{cut}/" for cut in cuts), "zz"]))
    with tempfile.TemporaryDirectory() as root:
        for key in keys:
            path = Path(root, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        found = [key for key, _ in walk_folder(root, prefix, after=after)]
    wanted = [key for key in keys if key.startswith(prefix) and key.encode() > after.encode()]
    assert found == sorted(wanted, key=str.encode)
