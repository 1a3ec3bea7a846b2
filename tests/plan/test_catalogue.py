"""The price catalogue: what ships, what people have, and what cannot be used."""

import time

import pytest

from manyhands.errors import InputError, UsageError
from manyhands.plan.catalogue import open_catalogue, shipped_names

HEAD = "instance,price_per_hour,currency,date,vcpus,memory_gib,device,devices\n"
SKYPILOT = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,"
    "Price,SpotPrice,Region,AvailabilityZone\n"
)
T4 = (
    "\"{'Gpus': [{'Name': 'T4', 'Manufacturer': 'NVIDIA', 'Count': 1, 'MemoryInfo': {'SizeInMiB': 16384}}],"
    " 'TotalGpuMemoryInMiB': 16384}\""
)


def written(tmp_path, text, name="my.csv"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_what_ships_can_be_read_and_is_dated():
    for name in shipped_names():
        catalogue = open_catalogue(name)
        assert catalogue.currency == "USD"
        for instance in catalogue.instances:
            assert instance.date and instance.price > 0 and instance.vcpus >= 2 and instance.memory_gib >= 4
            assert (instance.device is None) == (instance.devices == 0)
            assert (instance.spot_price is None) == (instance.spot_date is None)
            assert instance.spot_price is None or 0 < instance.spot_price < instance.price


def test_the_seeds_own_prices():
    seeds = open_catalogue("seeds-2019")
    prices = {i.name: (i.price, i.device, i.devices) for i in seeds.instances}
    assert prices == {
        "p2.xlarge": (0.90, "K80", 1),
        "g3.4xlarge": (1.14, "M60", 1),
        "g3.16xlarge": (4.56, "M60", 4),
        "m4.xlarge": (0.20, None, 0),
    }
    assert seeds.dates == "2019"
    assert seeds.instance("g3.4xlarge").retired


def test_families_grow_in_proportion():
    """A slip of the pen in a family's table would show here."""
    aws = open_catalogue("aws")
    for family in ("c6i", "c7a", "c7i", "c8i", "m6i", "m7i", "r5", "r6i", "r7i"):
        members = [i for i in aws.instances if i.name.startswith(f"{family}.")]
        assert len(members) >= 7
        per_vcpu = [i.price / i.vcpus for i in members]
        assert max(per_vcpu) == pytest.approx(min(per_vcpu), rel=1e-3), family
        assert len({i.memory_gib / i.vcpus for i in members}) == 1


def test_a_file_of_ones_own(tmp_path):
    path = written(tmp_path, HEAD + "box,0,EUR,2026-11-01,8,32,RTX4090,2\nold,0.5,EUR,2026-10-01,4,16,,\n")
    catalogue = open_catalogue(path)
    box, old = catalogue.instances
    assert (box.name, box.price, box.device, box.devices, box.provider) == ("box", 0.0, "RTX4090", 2, "my")
    assert (old.device, old.devices, old.network_gbps, old.spot_price, old.retired) == (
        None,
        0,
        None,
        None,
        False,
    )
    assert (catalogue.currency, catalogue.dates) == ("EUR", "2026-10-01 to 2026-11-01")
    with pytest.raises(UsageError, match="has no 'bix'; it has box, old"):
        catalogue.instance("bix")


def test_skypilots_file_as_people_have_it(tmp_path):
    rows = [
        f"g4dn.xlarge,T4,1.0,4.0,16.0,{T4},0.71,0.2264,ap-northeast-1,apne1-az4",
        f"g4dn.xlarge,T4,1.0,4.0,16.0,{T4},0.526,0.2010,us-east-1,use1-az1",
        f"g4dn.xlarge,T4,1.0,4.0,16.0,{T4},0.526,0.1845,us-east-1,use1-az5",
        f"g4dn.xlarge,T4,1.0,4.0,16.0,{T4},0.526,,us-east-1,use1-az6",
        "p2.xlarge,K80,1,4.0,61.0,not a literal,0.9,,us-east-1,use1-az1",
        "x9.large,,,2.0,4.0,,NaN,0.02,us-east-1,use1-az1",
        "x9.xlarge,,,4.0,8.0,,0.1,,us-east-1,use1-az1",
        "a2-highgpu-1g,,,12.0,85.0,,0.73948,0.29576,us-central1,us-central1-a",
        ",A100,1.0,,,A100,2.93,1.1,us-central1,us-central1-a",
        "g6f.xlarge,L4,0.125,4.0,16.0,,0.2375,0.1,us-east-1,use1-az1",
    ]
    path = written(tmp_path, SKYPILOT + "\n".join(rows) + "\n", "aws/vms.csv")
    catalogue = open_catalogue(path)
    assert [i.name for i in catalogue.instances] == ["g4dn.xlarge", "p2.xlarge", "x9.xlarge"]
    t4, k80, unknown = catalogue.instances
    assert (t4.region, t4.price, t4.spot_price, t4.provider) == ("us-east-1", 0.526, 0.1845, "aws")
    assert (t4.devices, t4.device_memory_gib, t4.network_gbps, t4.retired) == (1, 16.0, 5.0, False)
    assert (k80.retired, k80.device_memory_gib) == (True, None)
    assert (unknown.network_gbps, unknown.devices) == (None, 0)
    assert catalogue.dates == time.strftime("%Y-%m-%d", time.gmtime())
    tokyo = open_catalogue(path, region="ap-northeast-1")
    assert [(i.name, i.price) for i in tokyo.instances] == [("g4dn.xlarge", 0.71)]
    with pytest.raises(InputError, match="no machine with a price in the region mars-1"):
        open_catalogue(path, region="mars-1")


def test_many_rows_are_read_quickly(tmp_path):
    rows = (
        f"t{number}.xlarge,T4,1.0,4.0,16.0,{T4},{0.5 + zone / 100},0.2,region-{zone},zone-{zone}\n"
        for number in range(1000)
        for zone in range(50)
    )
    path = written(tmp_path, SKYPILOT + "".join(rows), "vms.csv")
    began = time.monotonic()
    assert len(open_catalogue(path).instances) == 1000
    assert time.monotonic() - began < 10  # it ends what crawls; it is no stopwatch


ROW = "a,1,USD,2026-01-01,4,16,,\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "my.csv is empty"),
        (HEAD, "no rows below"),
        ("instance,price_per_hour\na,1\n", "lacks the columns currency, date, vcpus, memory_gib"),
        ("a b c\n1 2 3\n", "lacks the columns"),
        (HEAD + ROW + "b,-1,USD,2026-01-01,4,16,,\n", "line 3 has '-1' as price_per_hour"),
        (HEAD + "b,free,USD,2026-01-01,4,16,,\n", "line 2 has 'free' as price_per_hour"),
        (HEAD + "b,NaN,USD,2026-01-01,4,16,,\n", "line 2 has no price_per_hour"),
        (HEAD + "b,inf,USD,2026-01-01,4,16,,\n", "line 2 has 'inf' as price_per_hour"),
        (HEAD + ROW + "b,1,EUR,2026-01-01,4,16,,\n", "line 3 is in EUR, and those before it are in USD"),
        (HEAD + "b,1,USD,,4,16,,\n", "line 2 has no date"),
        (HEAD + "b,1,USD,2026-01-01,4,16,,2\n", "names no device, but counts 2"),
        (HEAD + "b,1,USD,2026-01-01,4,16,T4,1.5\n", "1.5 devices"),
        (HEAD + ROW + ROW, "line 3 has a again, after line 2"),
        (HEAD + "b,1\n", "cannot be read as CSV"),
        ("\0\1\2\xff" * 9, "my.csv"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path, text, sentence):
    with pytest.raises(InputError) as told:
        open_catalogue(written(tmp_path, text))
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_negative_price_of_skypilot_is_told_with_its_line(tmp_path):
    with pytest.raises(InputError, match="line 2 has '-3' as Price"):
        open_catalogue(written(tmp_path, SKYPILOT + "a,,,4,16,,-3,,r,z\n"))


def test_what_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="no catalogue 'amazon'; take aws or seeds-2019, or name a CSV file"):
        open_catalogue("amazon")
    with pytest.raises(InputError, match="does not exist"):
        open_catalogue(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="cannot be read"):
        open_catalogue(str(tmp_path))
