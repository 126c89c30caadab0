from benchmarks.report.table import counts, figure, lines, markdown


def test_a_row_with_several_peers_becomes_a_line_for_each():
    row = {
        "what": "scan",
        "ours": "7.3 ms",
        "floor": "5.3 ms",
        "ours / floor": "1.25",
        "psutil": "13.1 ms",
        "psutil / ours": "1.80",
    }
    assert list(lines(row)) == [
        {"what": "scan", "ours": "7.3 ms", "peer": "floor", "theirs": "5.3 ms", "theirs / ours": "0.80"},
        {"what": "scan", "ours": "7.3 ms", "peer": "psutil", "theirs": "13.1 ms", "theirs / ours": "1.80"},
    ]


def test_a_row_of_the_tables_own_columns_stays_as_it_is():
    row = {
        "what": "plan",
        "ours": "1 ms",
        "peer": "Nova",
        "theirs": "3 ms",
        "theirs / ours": "3.00",
        "quality": "L3 +1",
    }
    assert list(lines(row)) == [row]


def test_other_columns_and_a_ratio_without_the_peers_figure_are_kept():
    row = {"what": "GET", "ours": "10/s", "p99": "5 ms", "ours / bare": "0.5", "nova": "not installed"}
    assert list(lines(row)) == [
        {
            "what": "GET",
            "ours": "10/s",
            "more": "p99: 5 ms; nova: not installed",
            "peer": "bare",
            "theirs / ours": "2.00",
        }
    ]


def test_the_table_has_only_the_columns_that_a_row_fills():
    assert markdown([{"what": "a", "ours": "1 ms"}, {"what": "b", "ours": "2 ms", "peer": "x"}]) == (
        "| what | ours | peer |\n|---|---|---|\n| a | 1 ms |  |\n| b | 2 ms | x |"
    )


def test_a_figure_is_the_number_at_the_start_with_its_unit():
    assert figure("17.1 ms (wall 18.0)") == (17.1, "ms")
    assert figure("22,946/s") == (22946.0, "/s")
    assert figure("80 ms, at worst 131 ms") == (80.0, "ms")
    assert figure("not measured") is None


def test_the_counts_of_a_quality_leave_out_the_name_of_the_cache():
    assert counts("L3 +12, shared cores 3, nodes +0, unplaced 1") == (12, 3, 0, 1)
