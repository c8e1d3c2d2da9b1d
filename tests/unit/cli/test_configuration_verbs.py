"""`validate`, `check`, `config` and `plugins`, with a plugin that was installed by entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from kiwi_gw.cli import main
from kiwi_gw.config.examples import examples
from tests.plugins.spark.without_extras import WITHOUT_EXTRAS

pytestmark = pytest.mark.usefixtures("example_plugin")

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str) -> str:
        path = tmp_path / "kiwi.yml"
        path.write_text(text)
        return str(path)

    return make


GOOD = "sources:\n  - {type: example, id: a}\n  - {type: example, id: b}\n"
BAD = "sources:\n  - type: example\n    id: a\n    hwo: well\nserver:\n  adress: x\n"


def test_a_valid_file(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(GOOD)
    assert main(["validate", path]) == 0
    assert capsys.readouterr().out == f"{path}: valid (2 sources; plugins: example)\n"
    assert main(["validate", "--json", "--config", path]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "valid": True,
        "problems": [],
        "sources": ["a", "b"],
        "plugins": ["example"],
    }


def test_every_problem_on_its_own_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(BAD)
    assert main(["validate", path]) == 78
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{path}:4: sources[0].hwo: ")
    assert lines[1].startswith(f"{path}:6: server.adress: ")
    assert main(["validate", path, "--json"]) == 78
    answer = json.loads(capsys.readouterr().out)
    assert [(p["line"], p["path"]) for p in answer["problems"]] == [
        (4, "sources[0].hwo"),
        (6, "server.adress"),
    ]
    assert answer["valid"] is False


@pytest.mark.parametrize("verb", [["run"], ["check"], ["config", "show"], []])
def test_other_verbs_tell_them_on_standard_error(
    verb: list[str], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(BAD)
    assert main([*verb, "--config", path]) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count(f"{path}:") == 2


def test_the_environment_names_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD)
    monkeypatch.setenv("CONFIG", "elsewhere.yml")
    monkeypatch.setenv("KIWI_GW_CONFIG", path)
    assert main(["validate"]) == 0
    assert path in capsys.readouterr().out
    assert main(["validate", "nowhere.yml"]) == 78
    assert "nowhere.yml: cannot be read" in capsys.readouterr().out
    assert main(["validate", "a.yml", "--config", "b.yml"]) == 2


def test_check_connects(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(GOOD)
    assert main(["check", path]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "LEVEL  WHAT       HOW IT IS",
        "ok     example a  well",
        "ok     example b  well",
    ]
    assert captured.err == f"{path}: this would work\n"


def test_check_shows_the_log_only_if_asked(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(GOOD)
    main(["check", path, "--verbose"])
    assert "a line of the log" in capsys.readouterr().err
    main(["check", path])
    captured = capsys.readouterr()
    assert "a line of the log" not in captured.out + captured.err


@pytest.mark.parametrize(
    ("how", "subject", "message"),
    [
        ("badly", "example a", "badly"),
        ("raises", "example", "RuntimeError: no such host"),
        ("slow", "example", "no answer in 0.01 s"),
    ],
)
def test_check_finds_what_would_not_work(
    how: str, subject: str, message: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(f"sources:\n  - {{type: example, id: a, how: {how}}}\n")
    assert main(["check", path, "--json", "--timeout", "0.01"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "findings": [{"level": "error", "subject": subject, "message": message}],
    }


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_check_counts_warnings_where_that_is_asked(
    options: list[str], code: int, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("sources:\n  - {type: example, id: a}\nserver: {address: '0.0.0.0:1'}\n")
    assert main(["check", path, *options]) == code
    assert capsys.readouterr().err == f"{path}: this would work, but there is 1 warning\n"
    assert main(["check", path, "--json", *options]) == code
    assert json.loads(capsys.readouterr().out)["ok"] is (code == 0)


def test_check_says_at_which_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        "sources:\n  - {type: example, id: a}\n  - type: example\n    id: b\n    how: |\n      x\n      y\n"
    )
    assert main(["check", path]) == 1
    pad = " " * len(f"{path}:7")
    assert capsys.readouterr().out.splitlines() == [
        f"LEVEL  WHERE{pad[5:]}  WHAT       HOW IT IS",
        f"ok     {pad}  example a  well",
        f"error  {path}:7  example b  no such word",
        f"       {pad}             said it",
    ]
    assert main(["check", path, "--json"]) == 1
    good, bad = json.loads(capsys.readouterr().out)["findings"]
    assert good == {"level": "ok", "subject": "example a", "message": "well"}
    assert bad == {
        "level": "error",
        "subject": "example b",
        "message": "no such word\nsaid it",
        "file": path,
        "line": 7,
    }


def test_explain(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(GOOD + "server: {workers: 3}\n")
    assert main(["explain", "b", "--config", path]) == 0
    assert capsys.readouterr().out == "worker 0 of 3:\n  well\\x1b\n"
    assert main(["explain", "b", "-c", write(BAD)]) == 78


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("badly", "there is nothing to explain about 'flights', a source of type 'example'"),
        ("raises", "'flights' cannot be explained: RuntimeError: no such host"),
        ("refused", "it is too cold"),
        ("slow", "no answer about 'flights' in 0.01 s"),
    ],
)
def test_what_cannot_be_explained(
    how: str, words: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(f"sources:\n  - {{type: example, id: flights, how: {how}}}\n")
    assert main(["explain", "flights", "-c", path, "--timeout", "0.01"]) == 1
    assert capsys.readouterr().err == f"kiwi-gw: {words}\n"


def test_explain_of_a_source_that_is_not_there(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("sources:\n  - {type: example, id: flights}\n")
    assert main(["explain", "flihgts", "-c", path]) == 1
    assert capsys.readouterr().err == f"kiwi-gw: {path} has no source 'flihgts'; did you mean 'flights'?\n"
    assert main(["explain", "prices", "-c", path]) == 1
    assert capsys.readouterr().err == f"kiwi-gw: {path} has no source 'prices'; it has: flights\n"


def test_check_looks_at_the_certificate_and_the_address(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = trustme.CA()
    good, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    good.cert_chain_pems[0].write_to_path(cert)

    def findings(code: int) -> list[tuple[str, str]]:
        path = write(f"server:\n  address: 0.0.0.0:1\n  tls: {{cert: {cert}, key: {key}}}\n")
        assert main(["check", path, "--json"]) == code
        found = json.loads(capsys.readouterr().out)["findings"]
        return [(item["level"], item["subject"]) for item in found]

    assert findings(1) == [("warning", "server.address"), ("error", "server.tls")]
    other.private_key_pem.write_to_path(key)
    assert findings(1) == [("warning", "server.address"), ("error", "server.tls")]
    good.private_key_pem.write_to_path(key)
    assert findings(0) == [("warning", "server.address"), ("ok", "server.tls")]


@pytest.mark.parametrize("verb", [["validate"], ["run", "--config"]])
@pytest.mark.parametrize(
    ("damage", "key", "words"),
    [
        ("no certificate", "cert", "cert.pem: cannot be read (No such file or directory)"),
        ("no key", "key", "key.pem: cannot be read (No such file or directory)"),
        ("no authority", "client_ca", "ca.pem: cannot be read (No such file or directory)"),
        ("a folder", "key", "key.pem: cannot be read (Is a directory)"),
        ("text", "cert", "cert.pem: there is not a certificate in PEM form in this file"),
        ("another's key", "key", "key.pem: the private key does not belong to the certificate in"),
        ("encrypted", "key", "key.pem: the private key is encrypted; a key without a passphrase is needed"),
    ],
)
def test_tls_files_that_cannot_be_used_are_mistakes_with_their_line(
    write: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: str,
    key: str,
    words: str,
    verb: list[str],
) -> None:
    authority = trustme.CA()
    issued, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    files = {name: tmp_path / f"{name}.pem" for name in ("cert", "key", "ca")}
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    issued.private_key_pem.write_to_path(files["key"])
    authority.cert_pem.write_to_path(files["ca"])
    if damage == "text":
        files["cert"].write_text("no certificate")
    elif damage == "another's key":
        other.private_key_pem.write_to_path(files["key"])
    elif damage == "encrypted":
        lock(files["key"])
    else:
        gone = {"no certificate": "cert", "no authority": "ca"}.get(damage, "key")
        files[gone].unlink()
        if damage == "a folder":
            files[gone].mkdir()
    names = f"cert: {files['cert']}\n    key: {files['key']}\n    client_ca: {files['ca']}\n"
    path = write(f"server:\n  address: '127.0.0.1:0'\n  admin_address:\n  tls:\n    {names}")
    assert main([*verb, path]) == 78
    printed = capsys.readouterr()
    line = {"cert": 5, "key": 6, "client_ca": 7}[key]
    text = printed.out + printed.err
    assert text.startswith(f"{path}:{line}: server.tls.{key}: {tmp_path}/{words}")
    assert text.count("\n") == 1


@pytest.mark.parametrize("verb", [["validate"], ["run", "--config"]])
def test_all_tls_files_that_cannot_be_used_are_told_at_once(
    write: Write, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    path = write("server:\n  tls:\n    cert: no.crt\n    key: no.key\n    client_ca: no.ca\n")
    assert main([*verb, path]) == 78
    printed = capsys.readouterr()
    assert (printed.out + printed.err).splitlines() == [
        f"{path}:{line}: server.tls.{key}: {file}: cannot be read (No such file or directory)"
        for line, key, file in ((3, "cert", "no.crt"), (4, "key", "no.key"), (5, "client_ca", "no.ca"))
    ]


def lock(key: Path) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(loaded, (RSAPrivateKey, EllipticCurvePrivateKey))
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(loaded.private_bytes(*kinds, serialization.BestAvailableEncryption(b"passphrase")))


def test_the_schema_knows_the_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    captured = capsys.readouterr()
    schema = json.loads(captured.out)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert "how" in captured.out
    assert "left out: plugin 'broken' cannot be imported" in captured.err


def test_what_is_in_force(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(GOOD)
    assert main(["config", "show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["sources"][1] == {"type": "example", "id": "b", "how": "well"}
    assert main(["config", "show", path]) == 0
    assert "address:\n  - 127.0.0.1:8000" in capsys.readouterr().out


def test_a_file_to_start_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.yml"
    assert main(["config", "init", str(path)]) == 0
    text = path.read_text()
    assert "sources:" in text
    assert main(["config", "init", str(path)]) == 1
    assert "--force" in capsys.readouterr().err
    path.write_text("")
    assert main(["config", "init", str(path), "--force"]) == 0
    assert path.read_text() == text
    assert main(["config", "init"]) == 0
    assert capsys.readouterr().out == text
    assert main(["config", "init", str(tmp_path / "no" / "such")]) == 1


def test_the_plugins_and_what_they_provide(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "example", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "example",
            "package": "example-plugin 1.2.3",
            "object": "example_plugin_of_a_test",
            "error": None,
            "needs": None,
            "source_types": ["example"],
            "dialect_types": [],
            "services": [],
            "config_sections": [],
            "hooks": ["check", "explain", "source_types"],
        }
    ]
    assert main(["plugins"]) == 1  # one of them is broken
    out = capsys.readouterr().out
    assert "example-plugin 1.2.3  source type example; hook check, explain" in out
    assert "cannot be loaded: plugin 'broken' cannot be imported" in out
    assert main(["plugins", "example_plugin_of_a_test:check"]) == 0
    assert main(["plugins", "nosuch"]) == 1


@pytest.mark.parametrize("verb", [["run"], ["validate"], ["check"], []])
def test_a_first_run_without_a_file_says_how_to_come_by_one(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "kiwi.yml"
    assert main([*verb, "--config", str(missing)]) == 78
    printed = capsys.readouterr()
    assert (printed.out + printed.err).splitlines()[
        0
    ] == f"{missing}: cannot be read: No such file or directory"
    assert printed.err.splitlines()[-1].startswith("to begin: kiwi-gw config init ")
    (tmp_path / "kiwi.yml").mkdir()
    assert main([*verb, "--config", str(missing)]) == 78
    assert "config init" not in capsys.readouterr().err


def test_plugins_without_their_extras_are_no_failure() -> None:
    verb = "from kiwi_gw.cli import main\nsys.exit(main(['plugins', 'counter', 'kafka', 'spark']))"
    code = f"{WITHOUT_EXTRAS}\n{verb}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    counter, kafka, spark = done.stdout.splitlines()[1:]
    assert counter.endswith("source type counter")
    assert kafka.endswith("needs: pip install 'kiwi-gw[kafka]'")
    assert "spark" in spark


def test_an_example_to_start_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.yml"
    assert main(["config", "init", "--example", "kafka", str(path)]) == 0
    assert path.read_text() == examples()["kafka"].read_text()
    assert capsys.readouterr().err.endswith(f"run it: kiwi-gw run --config {path}\n")
    assert main(["config", "init", "--example", "grafana.json", str(tmp_path / "board.json")]) == 0
    assert capsys.readouterr().err.endswith("board.json written\n")
    assert main(["config", "init", "--example", "kafak"]) == 1
    assert capsys.readouterr().err == "kiwi-gw: no example is called 'kafak'; did you mean 'kafka'?\n"
    assert main(["config", "init", "--example", "x"]) == 1
    assert "there is: counter, demo, " in capsys.readouterr().err


def test_the_examples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "init", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(examples())
    assert not [line for line in lines if len(line.split()) < 2], "each says what it is"
    assert "counter              The smallest thing that works: no Kafka, nothing to install" in lines


def test_an_installed_gateway_has_its_examples_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kiwi_gw"
    (package / "examples").mkdir(parents=True)
    (package / "examples" / "kafka.yml").write_text("sources: []\n")
    monkeypatch.setattr("kiwi_gw.config.examples._PACKAGE", package)
    assert examples() == {"kafka": package / "examples" / "kafka.yml"}
