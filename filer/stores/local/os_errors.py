"""Maps errors of the operating system to the errors of a store."""

import errno

from filer.errors import OutcomeUnknown, StoreError, StoreRefused

# Only errors that do not go away when the call is repeated. All others (EIO, ESTALE, EMFILE, …) may be temporary.
_REFUSED = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user has no permission; check the directory's owner and mode",
    errno.EPERM: "the file system does not allow it (it must support hard links)",
    errno.EOPNOTSUPP: "the file system does not allow it (it must support hard links)",
    errno.EXDEV: "a folder in it lies on another file system; the whole store must lie on one",
    errno.EMLINK: "the file system allows no more links",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EEXIST: "a part of its path is a file, not a folder",
    errno.ELOOP: "its path has a loop of symbolic links",
    errno.EINVAL: "the file system does not support it",
}
_TEMPORARY = {
    errno.ENOENT: "the store's directory was removed, or is not mounted at the moment",
    errno.ENOSPC: "no space is left on the device; free some",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "the file would be larger than the limit of this process (ulimit -f)",
    errno.EMFILE: "too many files are open in this process; raise its limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


def explain_os_error(error: OSError, what: str) -> StoreError:
    """The store error to raise: `StoreRefused` if repeating cannot help, `OutcomeUnknown` otherwise."""
    number = error.errno or 0
    reason = f"{error.strerror or error} ({errno.errorcode.get(number, number)})"
    cause = errno.errorcode.get(number, "OSError")
    if number in _REFUSED:
        return StoreRefused(f"{what}: {reason}: {_REFUSED[number]}", cause=cause)
    hint = f": {_TEMPORARY[number]}" if number in _TEMPORARY else ""
    return OutcomeUnknown(f"{what}: {reason}{hint}", cause=cause)
