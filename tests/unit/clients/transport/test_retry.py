from braidmq import Retry


def test_delays_double_up_to_the_cap_with_jitter_below() -> None:
    retry = Retry(first_delay_seconds=0.1, longest_delay_seconds=1.0)
    longest = [retry.delay_seconds(failures, b"\xff\xff\xff\xff") for failures in range(1, 7)]
    shortest = [retry.delay_seconds(failures, b"\x00\x00\x00\x00") for failures in range(1, 7)]
    assert [round(each, 3) for each in longest] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert [round(each, 3) for each in shortest] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_thousand_failures_do_not_overflow() -> None:
    assert Retry().delay_seconds(1000, b"\xff") <= Retry().longest_delay_seconds
