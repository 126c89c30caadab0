"""What the demo prints of a run."""

import json

from demo.output import Output
from demo.steps import Demo
from support.fakes.in_memory_host import daemon
from support.values import cpus

from pinner import codec
from pinner.model.change import AffinityChange, ThreadMask


def test_the_line_of_a_process_has_its_pid(capsys):
    change = AffinityChange(daemon(300), (ThreadMask(300, 7, cpus("0-1")),), cpus("0"), "so")
    entry = {"change": codec.plain(change), "state": "done"}
    demo = Demo.__new__(Demo)
    demo.output = Output(shows_all=True)
    demo._show_event(json.dumps({"done": 1, "total": 2, "entry": entry}))
    assert capsys.readouterr().out == "    1/2 process busyd (300): 0-1 -> 0 done\n"
