"""Files of jobs: what is read, and which errors invalid ones get."""

from pathlib import Path

import pytest

from kubeshare.core.demand import Demand
from kubeshare.core.gang import Gang
from kubeshare.core.units import GI, MI, Memory
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import FOREVER, HostRequest
from kubeshare.simulator.workloads.jobs_csv import JobsCsv
from kubeshare.simulator.workloads.openb import GPU_BYTES, OpenbPods, read_nodes
from kubeshare.simulator.workloads.table import MAX_LINE


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "jobs.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_line_needs_only_arrival_and_duration(tmp_path: Path) -> None:
    (job,) = JobsCsv(written(tmp_path, "arrival,duration\n1.5,10\n")).draw()
    assert (job.arrival_s, job.work_s, job.need_micros) == (1.5, 10, 1_000_000)
    assert job.demand == Demand(
        uid="job-2", name="job-2", request_micros=1_000_000, memory=Memory(micros=1_000_000)
    )


def test_a_job_that_serves_requests_needs_what_they_need(tmp_path: Path) -> None:
    text = "arrival,duration,request,rate,service_time\n0,10,0.5,20,0.01\n0,10,0.5,,\n"
    server, other = JobsCsv(written(tmp_path, text)).draw()
    assert (server.need_micros, server.service_s) == (200_000, 0.01)
    assert (other.need_micros, other.service_s) == (500_000, 0)


def test_a_line_may_say_all_that_a_pod_can_ask_for(tmp_path: Path) -> None:
    text = (
        "name,namespace,arrival,duration,request,limit,memory,gpus,model,need,kind,affinity,"
        "anti_affinity,exclusion,priority,preemptible,gang,min_available,cpu,host_memory\n"
        "a,team,0,5,0.3,0.6,4Gi,2,V100,0.5,B,red,green,blue,7,true,g,2,1.5,2Gi\n"
    )
    (job,) = JobsCsv(written(tmp_path, text)).draw()
    assert job.demand == Demand(
        uid="job-2",
        name="a",
        namespace="team",
        request_micros=300_000,
        limit_micros=600_000,
        memory=Memory(bytes=4 * GI),
        count=2,
        model="V100",
        affinity="red",
        anti_affinity="green",
        exclusion="blue",
    )
    assert (job.need_micros, job.kind, job.priority, job.preemptible) == (500_000, "B", 7, True)
    assert job.gang == Gang(name="g", min_available=2)
    assert job.host == HostRequest(cpu_millis=1500, memory_bytes=2 * GI)


def test_a_job_without_gpus_has_no_demand(tmp_path: Path) -> None:
    (job,) = JobsCsv(written(tmp_path, "arrival,duration,gpus,cpu\n0,1,0,2\n")).draw()
    assert job.demand is None
    assert job.host.cpu_millis == 2000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ":1: column arrival is missing"),
        ("arrival\n", ":1: column duration is missing"),
        ("arrival,duration,gpu\n", ":1: column 'gpu' is not known; these are: arrival, duration"),
        ("arrival,duration,arrival\n", ":1: a column occurs twice"),
        ("arrival,duration\n0,1\n1\n", ":3: 1 fields, and the header has 2"),
        ("arrival,duration\n-1,1\n", ":2: arrival: -1 is not a time from 0"),
        ("arrival,duration\n0,nan\n", ":2: duration: nan is not a time from 0"),
        ("arrival,duration\n0,soon\n", ":2: duration: 'soon' is not a number of seconds"),
        ("arrival,duration\n5,1\n4,1\n", ":3: arrival: is before that of the line above"),
        ("arrival,duration,request\n0,1,1.2\n", ":2: request: 1.2 is more than 1, a whole GPU"),
        ("arrival,duration,request,limit\n0,1,.6,.5\n", ":2: request: 0.6 is more than the limit"),
        ("arrival,duration,gpus\n0,1,-2\n", ":2: gpus: -2 is less than 0"),
        ("arrival,duration,gpus\n0,1,two\n", ":2: gpus: 'two' is not a whole number"),
        ("arrival,duration,need\n0,1,0\n", ":2: need: it is more than 0"),
        ("arrival,duration,rate\n0,1,5\n", ":2: rate, service_time: a job that serves requests"),
        ("arrival,duration,rate,service_time\n0,1,5,0.3\n", ":2: rate x service_time: 1.5"),
        ("arrival,duration,rate,service_time,need\n0,1,5,0.1,0.2\n", ":2: need: that of a job"),
        ("arrival,duration,rate,service_time\n0,1,-5,0.3\n", ":2: rate: -5 is not from 0"),
        ("arrival,duration,preemptible\n0,1,yes\n", ":2: preemptible: 'yes' is neither true"),
        ("arrival,duration,gang\n0,1,g\n", ":2: min_available: a gang needs it"),
        ("arrival,duration,cpu\n0,1,1e9\n", ":2: cpu: 1e9 is more than 100000"),
        (b"arrival,duration\n0,1\n\xff,1\n", ": 'utf-8' codec can't decode"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, text: str | bytes, error: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SimulationError) as raised:
        JobsCsv(path)
    assert str(raised.value).startswith(str(path))
    assert error in str(raised.value)


def test_one_bad_line_of_many_is_skipped_where_that_is_asked(tmp_path: Path) -> None:
    lines = [f"{number},1\n" for number in range(2000)]
    lines[1200] = "?,1\n"
    path = written(tmp_path, "arrival,duration\n" + "".join(lines))
    with pytest.raises(SimulationError, match=r":1202: arrival: '\?' is not a number"):
        JobsCsv(path)
    lenient = JobsCsv(path, lenient=True)
    assert (lenient.count, lenient.skipped) == (1999, 1)
    assert len(list(lenient.draw())) == 1999


def test_an_unmatched_quote_spoils_its_own_line_only(tmp_path: Path) -> None:
    path = written(tmp_path, 'name,arrival,duration\na,0,1\n"b,1,1\nc,2,1\n"d ""x""",3,1\n')
    with pytest.raises(SimulationError, match=r":3: unexpected end of data"):
        JobsCsv(path)
    lenient = JobsCsv(path, lenient=True)
    assert [job.name for job in lenient.draw()] == ["a", "c", 'd "x"']
    assert lenient.skipped == 1


def test_bytes_that_are_no_text_are_one_invalid_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbfarrival,duration\r\n0,1\r\n\xff,1\r\n\r\n2,1")
    with pytest.raises(SimulationError, match=r":3: 'utf-8' codec can't decode"):
        JobsCsv(path)
    lenient = JobsCsv(path, lenient=True)
    assert (lenient.count, lenient.skipped) == (2, 1)
    with pytest.raises(SimulationError, match=r":1: 'utf-8' codec can't decode"):
        JobsCsv(written(tmp_path, b"\xffarrival,duration\n"), lenient=True)


def test_a_line_has_a_bound(tmp_path: Path) -> None:
    endless = "0," + "1" * (2 * MAX_LINE)
    path = written(tmp_path, f"arrival,duration\n{endless}\n1,1\n")
    with pytest.raises(SimulationError, match=":2: the line is longer than 1048576 bytes"):
        JobsCsv(path)
    lenient = JobsCsv(path, lenient=True)
    assert (lenient.count, lenient.skipped) == (1, 1)


# The columns as published; the rows are not from the trace.
NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-a,96000,393216,2,P100\nnode-b,64000,262144,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "late,1000,1024,1,460,V100M16|P100,LS,Running,50,90,\n"
    "early,12000,16384,2,1000,,Burstable,Succeeded,10,70,20\n"
    "cpus,6000,1024,0,0,,BE,Running,30,,30.0\n"
)


def test_the_columns_of_openb_are_read(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    first, second = read_nodes(tmp_path / "nodes.csv")
    assert (first.name, first.gpus, first.kind.model) == ("node-a", 2, "P100")
    assert first.host is not None
    assert (first.host.cpu_millis, first.host.memory_bytes) == (96_000, 393_216 * MI)
    assert second.gpus == 0
    early, cpus, late = OpenbPods(tmp_path / "pods.csv").draw()
    assert (early.name, early.arrival_s, early.work_s) == ("early", 10, 50)
    assert early.demand is not None
    assert early.demand.count == 2
    assert cpus.demand is None
    assert cpus.work_s == FOREVER
    assert late.demand is not None
    assert (late.demand.request_micros, late.work_s) == (460_000, 40)
    assert late.demand.memory.on(GPU_BYTES) == GPU_BYTES * 46 // 100
    assert late.host.models == {"V100M16", "P100"}


def test_an_unknown_column_of_openb_is_named_and_no_bad_line_to_skip(tmp_path: Path) -> None:
    header, rows = PODS.split("\n", 1)
    pods = written(tmp_path, f"{header},priority\n{rows}")
    words = r":1: column 'priority' is not known; these are: name, "
    for lenient in (False, True):
        with pytest.raises(SimulationError, match=words):
            OpenbPods(pods, lenient=lenient)
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(NODES.replace("model", "gpu_model"))
    with pytest.raises(SimulationError, match=r":1: column 'gpu_model' is not known; these are"):
        read_nodes(nodes)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("a,1,1,1,1001,,,,0,1,0", "gpu_milli: 1001 is not from 1 to 1000"),
        ("a,1,1,2,500,,,,0,1,0", "gpu_milli: 500 of each of 2 GPUs"),
        ("a,1,1,1,500,,,,0,1,5", "deletion_time: 1 is before 5"),
        ("a,1,1,1,500,,,,-3,1,5", "creation_time: -3 is not a time"),
    ],
)
def test_an_invalid_pod_of_openb_is_named(tmp_path: Path, row: str, error: str) -> None:
    path = written(tmp_path, PODS.splitlines()[0] + f"\n{row}\n")
    with pytest.raises(SimulationError, match=f":2: {error}"):
        OpenbPods(path)
    assert OpenbPods(path, lenient=True).skipped == 1
