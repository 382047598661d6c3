"""Kinds that several threads decode at once for the first time."""

import subprocess
import sys

SCRIPT = """
import sys, threading, msgspec
from nodewright.documents.formats.decode import decode, decode_json

def decode_at_once(decoding, document, kind):
    begin = threading.Barrier(3)

    def run():
        begin.wait()
        decoding(document, kind)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

sys.setswitchinterval(1e-6)
for number in range(60):
    fields = [(f"field{index}", msgspec.defstruct(f"Field{index}", [("value", int)])) for index in range(20)]
    kind = msgspec.defstruct(f"Kind{number}", fields)
    document = {name: {"value": 1} for name, _ in fields}
    if number % 2:
        decode_at_once(decode, document, kind)
    else:
        decode_at_once(decode_json, msgspec.json.encode(document), kind)
"""


def test_threads_may_decode_a_kind_at_once() -> None:
    assert subprocess.run([sys.executable, "-c", SCRIPT], check=False).returncode == 0
