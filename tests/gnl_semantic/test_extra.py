"""Without the extra that brings numpy and the model, the package says so where it is needed, and not before."""

import subprocess
import sys


def test_without_its_extra_the_gate_says_which_it_needs_and_the_rules_work():
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from gnl_core import MissingExtraError\n"
        "from gnl_semantic import Judge, Rules, SemanticIdentity, evaluate, read_telemetry\n"
        "one, other = (SemanticIdentity(keys=('sku',)).build('t', {'sku': sku}).values for sku in ('tv 42', 'TV-42'))\n"
        "print(evaluate(one, other, Rules()).outcome)\n"
        "try: from gnl_semantic import SemanticGate\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    outcome, told = done.stdout.splitlines()
    assert outcome == "match"
    assert "pip install 'gnl-semantic[semantic]'" in told
