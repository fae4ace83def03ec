"""Accelerators: devices from recorded outputs, and their assignment.

The recordings are rows and lines that users published, reduced to the columns that are asked for.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.machines import accelerators
from infra.machines.accelerators import AcceleratorError, ContainerAccess, Device
from tests.unit.infra.conftest import devices

A100_UUIDS = [
    "GPU-513536b6-7d19-9063-b049-1e69664bb298",
    "GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95",
]
TWO_A100 = f"""\
0, {A100_UUIDS[0]}, NVIDIA A100-SXM4-80GB, Disabled
1, {A100_UUIDS[1]}, NVIDIA A100-SXM4-80GB, Disabled
"""
ONE_DIVIDED = TWO_A100.replace("Disabled", "Enabled", 1)
TWO_A100_LIST = "".join(
    f"GPU {i}: NVIDIA A100-SXM4-80GB (UUID: {uuid})\n" for i, uuid in enumerate(A100_UUIDS)
)
ONE_DIVIDED_LIST = f"""\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: {A100_UUIDS[0]})
  MIG 1g.20gb     Device  0: (UUID: MIG-ce861fb0-a248-58ce-a9a8-f9adbc22a66a)
  MIG 1g.20gb     Device  1: (UUID: MIG-a25704ba-3a06-5299-a795-fd7cf4d13973)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: {A100_UUIDS[1]})
"""
OLD_DRIVER_LIST = f"""\
GPU 0: A100-SXM4-40GB (UUID: {A100_UUIDS[0]})
  MIG 1g.5gb Device 0: (UUID: MIG-{A100_UUIDS[0]}/7/0)
"""
GB10 = "0, GPU-2dee1e25-b3b5-007e-2b55-79f2d0f2ebe5, NVIDIA GB10, [N/A]\n"
WSL2 = "0, GPU-b5e386b4-3e71-5837-aca5-80c5914cf07f, NVIDIA GeForce RTX 3090, [N/A]\n"
FALLEN_OFF_THE_BUS = """\
Unable to determine the device handle for GPU1: 0000:04:00.0: Unknown Error
0, GPU-089608fe-cba5-4711-bf68-085fd0711d8c, NVIDIA GeForce RTX 3080, [N/A]
2, GPU-5e375e7e-b41f-155b-dcdc-534524c356fc, NVIDIA GeForce RTX 3080, [N/A]
"""
MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161"
)
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running."
)

CPU_NODE = (
    "cpu_cores_count 192\nsimd_count 0\ngfx_target_version 0\nvendor_id 0\ndrm_render_minor 0"
)
MI100_NODE = """\
cpu_cores_count 0
simd_count 480
mem_banks_count 1
gfx_target_version 90008
vendor_id 4098
device_id 29580
location_id 8960
domain 0
drm_render_minor 128
unique_id 7809984429061111111
"""
# Listed first by the kernel's numbers, second by those of the render nodes.
OTHER_MI100_NODE = (
    MI100_NODE.replace("location_id 8960", "location_id 768")
    .replace("minor 128", "minor 129")
    .replace("unique_id 7809984429061111111\n", "")
)
TWO_MI100 = {0: CPU_NODE, 1: OTHER_MI100_NODE, 2: MI100_NODE}
NODES = ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"]
MI100_SMI = """\
WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"PCI Bus": "0000:23:00.0", "Card series": "Arcturus GL-XL [AMD Instinct MI100]",
 "Card model": "0x0c34", "Card vendor": "Advanced Micro Devices, Inc. [AMD/ATI]"},
 "card1": {"PCI Bus": "0000:03:00.0", "Card series": "0x738c",
 "Card model": "AMD Instinct MI100"}, "system": {"Driver version": "6.7.0"}}
"""
MI250_SMI = """\
{"card0": {"PCI Bus": "0000:E7:00.0", "Card Series": "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2",
 "Card Model": "0x7408", "Node ID": "7", "GUID": "58294", "GFX Version": "gfx9010"}}
"""
PHOENIX_SMI = (
    '{"card0": {"PCI Bus": "0000:C4:00.0", "Card Series": "N/A", "Device Name": "Phoenix3"}}'
)


def test_reads_two_gpus():
    found = accelerators.parse_nvidia(TWO_A100, TWO_A100_LIST)
    assert [device.uuid for device in found] == A100_UUIDS  # D18
    assert found[1] == Device(
        index=1,
        kind="nvidia",
        name="NVIDIA A100-SXM4-80GB",
        uuid=A100_UUIDS[1],
        path="",
    )


def test_a_divided_gpu_counts_as_its_parts():
    found = accelerators.parse_nvidia(ONE_DIVIDED, ONE_DIVIDED_LIST)
    assert [device.index for device in found] == [0, 1, 2]
    assert [device.uuid[:12] for device in found] == [
        "MIG-ce861fb0",
        "MIG-a25704ba",
        "GPU-d8594bd4",
    ]
    assert found[0].name == "NVIDIA A100-SXM4-80GB MIG 1g.20gb"


def test_a_gpu_that_is_to_be_divided_and_is_not_counts_for_nothing():
    found = accelerators.parse_nvidia(ONE_DIVIDED, TWO_A100_LIST)
    assert [(device.index, device.uuid) for device in found] == [(0, A100_UUIDS[1])]


def test_reads_how_older_drivers_name_parts():
    row = f"0, {A100_UUIDS[0]}, A100-SXM4-40GB, Enabled"
    (part,) = accelerators.parse_nvidia(row, OLD_DRIVER_LIST)
    assert part.uuid == f"MIG-{A100_UUIDS[0]}/7/0"


@pytest.mark.parametrize(("query", "count"), [(GB10, 1), (WSL2, 1), (FALLEN_OFF_THE_BUS, 2)])
def test_reads_what_drivers_leave_out_or_add(query, count):
    found = accelerators.parse_nvidia(query, "")
    assert [device.index for device in found] == list(range(count))


@pytest.mark.parametrize("text", ["", MISMATCH, NO_DRIVER, "No devices were found\n"])
def test_an_error_message_is_no_device(text):
    assert accelerators.parse_nvidia(text, text) == ()


def test_reads_amd_gpus_in_the_order_of_rocm():  # D16
    names = accelerators.parse_rocm_smi(MI100_SMI)
    found = accelerators.parse_amd(TWO_MI100, NODES, names)
    assert found == (
        Device(
            index=0,
            kind="amd",
            name="AMD Instinct MI100",
            uuid="",
            path="/dev/dri/renderD129",
        ),
        Device(
            index=1,
            kind="amd",
            name="Arcturus GL-XL [AMD Instinct MI100]",
            uuid="GPU-6c62a3758b84fd47",
            path="/dev/dri/renderD128",
        ),
    )


def test_a_gpu_whose_node_is_not_there_cannot_be_used():
    (found,) = accelerators.parse_amd(TWO_MI100, ["/dev/kfd", "/dev/dri/renderD128"], {})
    assert (found.index, found.path, found.name) == (0, "/dev/dri/renderD128", "AMD gfx908")
    assert accelerators.parse_amd(TWO_MI100, NODES[1:], {}) == ()


@pytest.mark.parametrize(
    ("version", "name"),
    [("90010", "AMD gfx90a"), ("110000", "AMD gfx1100"), ("120001", "AMD gfx1201")],
)
def test_without_rocm_smi_the_architecture_is_the_name(version, name):
    node = MI100_NODE.replace("90008", version)
    (found,) = accelerators.parse_amd({1: node}, NODES, accelerators.parse_rocm_smi(""))
    assert found.name == name


def test_reads_names_however_rocm_smi_writes_its_fields():
    assert accelerators.parse_rocm_smi(MI250_SMI) == {
        "0000:e7:00.0": "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"
    }
    assert accelerators.parse_rocm_smi(PHOENIX_SMI) == {"0000:c4:00.0": "Phoenix3"}


@pytest.mark.parametrize("text", ["", "rocm-smi: not found", "{", "{}", "[1]", '{"card0": 1}'])
def test_names_that_cannot_be_read_are_left_out(text):
    assert accelerators.parse_rocm_smi(text) == {}


@given(text=st.text(max_size=200), listing=st.text(max_size=200))
def test_no_output_of_a_tool_ends_the_reading(text, listing):
    accelerators.parse_nvidia(text, listing)
    accelerators.parse_amd(
        {1: text, 2: MI100_NODE + text}, NODES, accelerators.parse_rocm_smi(text)
    )


@given(each=st.integers(1, 8), workers=st.integers(1, 64), more=st.integers(0, 3))
def test_every_worker_gets_devices_that_no_other_has(each, workers, more):
    there = devices(each * workers + more)
    assigned = accelerators.assign("nvidia", there, [float(each)] * workers)
    given = [index for indexes in assigned for index in indexes]
    assert all(len(indexes) == each for indexes in assigned)
    assert given == list(range(each * workers))  # D19


@pytest.mark.parametrize(
    ("found", "wanted", "action"),
    [
        (0, [1.0], "look at the output of `nvidia-smi`"),
        (1, [1.0, 1.0], "set workers to 1"),  # D2: a lab of two GPUs on a node with one
        (3, [1.0] * 4, "set workers to 3"),
        (5, [2.0] * 3, "set workers to 2"),
        (1, [2.0], "set worker.gpus to 1"),
        (3, [4.0, 4.0], "set worker.gpus to 1"),
        (2, [3.0] * 3, "set worker.gpus to 1 and workers to 2"),
    ],
)
def test_too_few_devices_are_refused_with_what_would_fit(found, wanted, action):
    there = devices(found)
    with pytest.raises(AcceleratorError) as raised:
        accelerators.assign("nvidia", there, wanted)
    message = str(raised.value)
    assert message.startswith("accelerator = 'nvidia': ")
    assert f"this machine has {found}" in message
    assert all(device.uuid in message for device in there)
    assert message.endswith(f"; {action}, or set accelerator to none")
    if "workers to" in action or "worker.gpus" in action:
        numbers = [int(word) for word in action.split() if word.isdecimal()]
        workers = numbers[-1] if "workers to" in action else len(wanted)
        each = numbers[0] if "worker.gpus" in action else int(wanted[0])
        assert accelerators.assign("nvidia", there, [float(each)] * workers)


def test_the_refusal_reads_as_a_sentence():
    with pytest.raises(AcceleratorError) as raised:
        accelerators.assign("nvidia", devices(1), [1.0, 1.0])
    assert str(raised.value) == (
        "accelerator = 'nvidia': 2 workers with 1 GPU each need 2 devices, this machine has 1 "
        "(NVIDIA A10, GPU-0); set workers to 1, or set accelerator to none"
    )


def test_a_long_list_of_devices_is_cut():
    with pytest.raises(AcceleratorError) as raised:
        accelerators.assign("nvidia", devices(16), [1.0] * 17)
    assert "GPU-7; …)" in str(raised.value)


def test_where_a_container_reaches_all_devices_only_one_is_accepted():
    assert accelerators.assign("nvidia", devices(1), [1.0], undivided=True) == ((0,),)
    with pytest.raises(AcceleratorError, match="WSL 2"):
        accelerators.assign("nvidia", devices(2), [1.0], undivided=True)


@pytest.mark.parametrize(
    ("engine", "hook"),
    [
        ({"Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}}, False),
        ({"Runtimes": {"runc": {}}}, True),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, False),
    ],
)
def test_the_toolkit_is_found_by_any_of_its_traces(engine, hook):
    accelerators.check_toolkit(engine, hook=hook)


@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}}},
        {"Runtimes": None, "DiscoveredDevices": None},
        {"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]},
    ],
)
def test_a_missing_toolkit_is_named(engine):
    with pytest.raises(AcceleratorError, match="nvidia-container-toolkit") as raised:
        accelerators.check_toolkit(engine, hook=False)
    assert "nvidia-ctk runtime configure" in str(raised.value)


NVIDIA_SCRIPT = """
case "$1" in
-L) cat <<'EOF'
{listing}EOF
;;
*) cat <<'EOF'
{query}EOF
;;
esac
"""


@pytest.fixture
def tools(bare, monkeypatch) -> Path:
    """A machine without accelerators, with the shell's own programs; returns the folder on PATH."""
    monkeypatch.setenv("PATH", f"{bare}:/usr/bin:/bin")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(accelerators, "WSL", bare / "dxg")
    monkeypatch.setattr(accelerators, "KFD_TOPOLOGY", bare / "nodes")
    return bare


def test_nothing_is_looked_at_without_an_accelerator(bare):
    assert accelerators.choose("none", [0.0, 0.0], {}) == ((), ((), ()))


def test_chooses_nvidia_devices(tools, put_program):
    put_program(tools, "nvidia-smi", NVIDIA_SCRIPT.format(query=TWO_A100, listing=TWO_A100_LIST))
    put_program(tools, accelerators.NVIDIA_HOOK, "exit 0")
    access, gpus = accelerators.choose("nvidia", [1.0, 1.0], {})
    assert gpus == ((0,), (1,))
    assert access == tuple(ContainerAccess(gpus=(uuid,)) for uuid in A100_UUIDS)


def test_wsl_2_is_told_by_its_device(tools, put_program):
    put_program(tools, "nvidia-smi", NVIDIA_SCRIPT.format(query=TWO_A100, listing=TWO_A100_LIST))
    (tools / "dxg").touch()
    with pytest.raises(AcceleratorError, match="WSL 2"):
        accelerators.choose("nvidia", [1.0], {})


@pytest.mark.parametrize(
    ("script", "said", "action"),
    [
        (f"echo '{MISMATCH}'; exit 18", "Driver/library version mismatch", "restart the machine"),
        (f'echo "{NO_DRIVER}"; exit 9', "couldn't communicate", "repair the driver"),
        ("echo 'No devices were found'; exit 6", "No devices were found", "repair the driver"),
        ("exit 3", "exit code 3", "repair the driver"),
        ("exit 0", "this machine has 0 (none)", "nvidia-smi"),
        ("", "nvidia-smi is not on PATH", "install the driver"),
    ],
)
def test_what_a_broken_driver_says_is_passed_on(
    tools, put_program, monkeypatch, script, said, action
):
    if script:
        put_program(tools, "nvidia-smi", script)
    else:
        monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(AcceleratorError) as raised:
        accelerators.choose("nvidia", [1.0], {})
    message = str(raised.value)
    assert said in message
    assert action in message
    assert "\n" not in message


def test_a_tool_that_hangs_is_given_up(tools, put_program, monkeypatch):
    monkeypatch.setattr(accelerators, "TOOL_SECONDS", 0.2)
    put_program(tools, "nvidia-smi", "exec sleep 60")
    with pytest.raises(AcceleratorError, match="does not answer within"):
        accelerators.choose("nvidia", [1.0], {})


def test_an_engine_elsewhere_is_not_looked_at(tools, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@lab")
    with pytest.raises(AcceleratorError, match="ssh://user@lab"):
        accelerators.choose("amd", [1.0], {})


def test_chooses_amd_devices(tools, put_program, monkeypatch):
    for number, text in TWO_MI100.items():
        folder = tools / "nodes" / str(number)
        folder.mkdir(parents=True)
        (folder / "properties").write_text(text)
    put_program(tools, "rocm-smi", f"cat <<'EOF'\n{MI100_SMI}EOF")
    monkeypatch.setattr(accelerators, "_nodes", lambda: NODES)
    groups = {"/dev/kfd": "110", "/dev/dri/renderD129": "110", "video": "44"}
    monkeypatch.setattr(accelerators, "_groups", lambda _: groups)
    access, gpus = accelerators.choose("amd", [1.0, 1.0], {})
    assert gpus == ((0,), (1,))
    nodes = ("/dev/dri/renderD129", "/dev/dri/renderD128")
    assert access == tuple(  # D16, D17
        ContainerAccess(devices=("/dev/kfd", node), groups=("110", "44")) for node in nodes
    )


def test_without_the_driver_of_amd_there_are_no_devices(tools):
    with pytest.raises(AcceleratorError, match=r"this machine has 0 \(none\); .*amdgpu"):
        accelerators.choose("amd", [1.0], {})
