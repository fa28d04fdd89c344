"""What a consortium's folder has for other programs is held against those programs, where they are installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.consortia import made

UNITS = ["server/apiece-serve.service", "nodes/north/apiece-join.service"]
HARDENED = 2.5  # of ten: what `systemd-analyze security` says of how much a unit exposes


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With its own place instead of that on a server's machine."""
    place = made(tmp_path_factory.mktemp("made") / "consortium", at="localhost:18443")
    for path in [place / "server" / "nginx.conf", place / "server" / "Caddyfile"]:
        path.write_text(path.read_text().replace("/etc/apiece/consortium", str(place)))
    for name in UNITS:
        (place / name).write_text((place / name).read_text().replace("/opt/apiece/bin/apiece", "/bin/true"))
    return place


def program(name: str) -> str:
    """Where a program is; the test is skipped where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def ran(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_units_and_finds_them_closed(consortium, unit):
    analyze = program("systemd-analyze")
    assert ran(analyze, "verify", consortium / unit).strip() == ""
    said = ran(analyze, "security", "--offline=yes", "--no-pager", consortium / unit)
    assert float(re.findall(r"exposure level for \S+: ([\d.]+)", said)[0]) <= HARDENED


@pytest.mark.slow
def test_nginx_takes_its_configuration(consortium, tmp_path):
    nginx = program("nginx")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}}\n"
        f"http {{ access_log off; {places} include {consortium}/server/nginx.conf; }}\n"
    )
    assert "test is successful" in ran(nginx, "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf")


@pytest.mark.slow
def test_caddy_takes_its_configuration(consortium, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("validate", "--config", consortium / "server" / "Caddyfile", "--adapter", "caddyfile")
    assert "Valid configuration" in ran(program("caddy"), *words)


@pytest.mark.slow
def test_hadolint_finds_nothing(consortium):
    assert ran(program("hadolint"), consortium / "server" / "Containerfile") == ""


def test_the_proxies_let_the_same_through(consortium):
    """The way in is one pattern, which no path to another interface of the server has."""
    nginx, caddy = ((consortium / "server" / name).read_text() for name in ("nginx.conf", "Caddyfile"))
    (one,), (other,) = re.findall(r"location ~ (\S+) {", nginx), re.findall(r"path_regexp (\S+)", caddy)
    assert one == other
    assert re.match(one, "/v1/fleet/pull-messages")
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task", "/v1/fleet/../control/ls", "/v1/fleet/", "/"):
        assert not re.match(one, path)
    assert nginx.count("proxy_pass ") == 1 and caddy.count("reverse_proxy ") == 1


def test_every_path_that_a_node_calls_is_let_through(consortium):
    control = pytest.importorskip("flwr.superlink.routers.control.router").router
    fleet = pytest.importorskip("flwr.superlink.routers.fleet.router").router
    (pattern,) = re.findall(r"location ~ (\S+) {", (consortium / "server" / "nginx.conf").read_text())
    paths = [(route.path, route.methods) for route in fleet.routes]
    assert len(paths) > 5 and all(re.match(pattern, path) and methods == {"POST"} for path, methods in paths)
    assert not any(re.match(pattern, route.path) for route in control.routes)


def rendered(chart: Path, role: str) -> list[dict[str, Any]]:
    """The chart's objects: its templates have no expression but one condition and values."""
    values, found = yaml.safe_load((chart / "values.yaml").read_text()) | {"role": role}, []
    for path in sorted((chart / "templates").iterdir()):
        first, *lines = path.read_text().splitlines()
        assert lines.pop() == "{{- end }}"
        (asked,) = re.fullmatch(r'{{- if eq \.Values\.role "(\w+)" }}', first).groups()  # pyright: ignore
        text = re.sub(r"{{ \.Values\.(\w+) }}", lambda of: str(values[of[1]]), "\n".join(lines))
        assert "{{" not in text
        found += list(yaml.safe_load_all(text)) if asked == role else []
    return found


@pytest.mark.parametrize("role, kinds", [("server", ["Service", "StatefulSet"]), ("node", ["StatefulSet"])])
def test_the_chart_gives_objects_whose_parts_belong_together(consortium, role, kinds):
    """Held against no schema here: Helm and a cluster are not to be had."""
    objects = rendered(consortium / "chart", role)
    assert sorted(each["kind"] for each in objects) == kinds
    work = objects[-1]["spec"]
    pod = work["template"]["spec"]
    assert work["selector"]["matchLabels"] == work["template"]["metadata"]["labels"]
    volumes = {each["name"] for each in pod["volumes"]} | {e["metadata"]["name"] for e in work["volumeClaimTemplates"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    if role == "server":
        (port,) = objects[0]["spec"]["ports"]
        assert objects[0]["spec"]["selector"] == work["template"]["metadata"]["labels"]
        assert port["targetPort"] == 18443 == pod["containers"][1]["ports"][0]["containerPort"]


@pytest.mark.parametrize("place", ["server", "nodes/north"])
def test_containers_have_no_rights_and_mount_what_is_there(consortium, place):
    table = yaml.safe_load((consortium / place / "compose.yaml").read_text())
    for service in table["services"].values():
        assert service["cap_drop"] == ["ALL"] and service["read_only"] and service["user"] == "10001:10001"
        sources = [volume.partition(":")[0] for volume in service["volumes"]]
        assert all((consortium / place / source).exists() for source in sources if source[0] == ".")
    published = [port for service in table["services"].values() for port in service.get("ports", [])]
    assert published == (["18443:18443"] if place == "server" else [])
    assert json.dumps(table).count("8000") == 0
