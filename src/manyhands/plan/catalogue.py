"""The price catalogue: machines that can be rented, from a dated CSV file.

Two layouts are read: ours (docs/reference/catalogue.md) and SkyPilot's ``vms.csv`` as people have it.
"""

import ast
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
from fsspec.core import url_to_fs
from pyarrow import csv

from manyhands.errors import InputError, UsageError
from manyhands.storage.files import reading

SHIPPED = files("manyhands.plan") / "catalogues"
REQUIRED = ("instance", "price_per_hour", "currency", "date", "vcpus", "memory_gib")
OPTIONAL = (
    *("provider", "region", "spot_price_per_hour", "spot_date", "device", "devices"),
    *("device_memory_gib", "network_gbps", "retired"),
)
SKYPILOT = ("InstanceType", "vCPUs", "MemoryGiB", "Price", "Region")
SKYPILOT_MORE = ("SpotPrice", "AcceleratorName", "AcceleratorCount", "GpuInfo")
SKYPILOT_CURRENCY = "USD"
EMPTY = ("", "NaN", "nan", "NA", "N/A", "null", "None")
YES_AND_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
# SkyPilot prices Google's devices apart from the machines around them, which alone look far too cheap.
GOOGLE_HOSTS_OF_DEVICES = ("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")

Row = dict[str, Any]


@dataclass(frozen=True)
class Instance:
    """A machine that can be rented. Prices are for an hour; None is what is not known."""

    name: str
    provider: str
    region: str
    price: float
    spot_price: float | None
    currency: str
    date: str
    vcpus: float
    memory_gib: float
    device: str | None
    devices: int
    device_memory_gib: float | None  # of each device
    network_gbps: float | None  # what lasts, and not for a few minutes only
    retired: bool
    spot_date: str | None = None  # where the spot price is of another day


@dataclass(frozen=True)
class Catalogue:
    """Machines to choose from, each once, by name; all prices are in one currency."""

    name: str
    instances: list[Instance]

    @property
    def currency(self) -> str:
        return self.instances[0].currency

    @property
    def dates(self) -> str:
        """The day of the prices, or the first and the last of them.

        >>> open_catalogue("aws").dates
        '2026-02-09'
        """
        days = sorted({instance.date for instance in self.instances})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    def instance(self, name: str) -> Instance:
        """The machine of this name.

        >>> open_catalogue("seeds-2019").instance("g3.16xlarge").devices
        4
        """
        for instance in self.instances:
            if instance.name == name:
                return instance
        raise UsageError(f"the catalogue {self.name} has no '{name}'; it has {self._some_names(name)}")

    def _some_names(self, wanted: str) -> str:
        names = [instance.name for instance in self.instances]
        family = wanted.partition(".")[0] + "."
        names = [name for name in names if name.startswith(family)] or names
        return ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")


def open_catalogue(name: str, region: str | None = None) -> Catalogue:
    """Read a catalogue: one of ours by its name, or the CSV file at a path or URL.

    If several regions offer a machine, the cheapest offer is taken; with ``region``, that of this region.
    """
    known = shipped_names()
    if name in known:
        place, text, day = f"{name}.csv", (SHIPPED / f"{name}.csv").read_bytes(), ""
    elif "/" in name or "." in name:
        place, text, day = name, *_read(name)
    else:
        raise UsageError(f"there is no catalogue '{name}'; take {' or '.join(known)}, or name a CSV file")
    table = _table(place, text)
    if set(SKYPILOT) <= set(table.column_names):
        offers = _skypilot_offers(place, table, day)
    else:
        offers = _offers(place, table)
    kept = _cheapest(offers, region)
    if not kept:
        where = f" in the region {region}" if region else ""
        raise InputError(f"{place} has no machine with a price{where}")
    return Catalogue(name, kept)


def shipped_names() -> list[str]:
    """The catalogues that come with the package.

    >>> shipped_names()
    ['aws', 'seeds-2019']
    """
    return sorted(entry.name.removesuffix(".csv") for entry in SHIPPED.iterdir())


def _read(name: str) -> tuple[bytes, str]:
    """A file, and the day on which it was last changed: SkyPilot's has no date inside."""
    with reading(name):
        filesystem, path = url_to_fs(name)
        text: bytes = filesystem.cat_file(path)
        try:
            day = time.strftime("%Y-%m-%d", time.gmtime(filesystem.modified(path).timestamp()))
        except NotImplementedError:  # what fsspec says of a store that keeps no times
            day = "an unknown day"  # today's date would promise prices that nobody has looked at
    return text, day


def _table(place: str, text: bytes) -> pa.Table:
    """All cells as strings: numbers are made of them where an error can say the line."""
    if not text.strip():
        raise InputError(f"{place} is empty; a catalogue is CSV that begins with the names of its columns")
    try:
        heads = csv.read_csv(pa.BufferReader(text.split(b"\n", 1)[0] + b"\n")).column_names
        table = csv.read_csv(
            pa.BufferReader(text),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(heads, pa.string()), null_values=EMPTY, strings_can_be_null=True
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{place} cannot be read as CSV: {str(error).splitlines()[0]}") from None
    missing = [name for name in REQUIRED if name not in heads]
    if missing and not set(SKYPILOT) <= set(heads):
        raise InputError(
            f"{place} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"a catalogue has {', '.join(REQUIRED)}, or the columns of SkyPilot's vms.csv"
        )
    if not len(table):
        raise InputError(f"{place} has the names of columns and no rows below them")
    return table


def _rows(table: pa.Table, names: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    """The line and the cells of every row; None for what is empty or not there at all."""
    there = [name for name in names if name in table.column_names]
    absent = dict.fromkeys(set(names) - set(there))
    columns = (table.column(name).to_pylist() for name in there)
    for line, cells in enumerate(zip(*columns, strict=True), 2):
        yield line, absent | dict(zip(there, cells, strict=True))


def _offers(place: str, table: pa.Table) -> Iterator[Instance]:
    """The rows of a file in our layout."""
    seen: dict[tuple[str, str, str], int] = {}
    currency = table.column("currency")[0].as_py()
    for line, row in _rows(table, REQUIRED + OPTIONAL):
        _check(place, line, row, currency)
        number = _numbers_of(place, line, row)
        instance = Instance(
            name=row["instance"],
            provider=row["provider"] or Path(place).stem,
            region=row["region"] or "",
            price=number("price_per_hour") or 0.0,
            spot_price=number("spot_price_per_hour"),
            currency=row["currency"],
            date=row["date"],
            vcpus=number("vcpus") or 0.0,
            memory_gib=number("memory_gib") or 0.0,
            device=row["device"],
            devices=_devices(place, line, row["device"], number("devices")),
            device_memory_gib=number("device_memory_gib"),
            network_gbps=number("network_gbps"),
            retired=YES_AND_NO[(row["retired"] or "no").lower()],
            spot_date=row["spot_date"],
        )
        earlier = seen.setdefault((instance.provider, instance.name, instance.region), line)
        if earlier != line:
            raise InputError(f"{place} line {line} has {instance.name} again, after line {earlier}; keep one")
        yield instance


def _check(place: str, line: int, row: Row, currency: str | None) -> None:
    for name in REQUIRED:
        if row[name] is None:
            raise InputError(f"{place} line {line} has no {name}")
    if row["currency"] != currency:
        raise InputError(
            f"{place} line {line} is in {row['currency']}, and those before it are in {currency}; "
            "prices in two currencies cannot be compared: make two catalogues"
        )
    if (row["retired"] or "no").lower() not in YES_AND_NO:
        raise InputError(f"{place} line {line} says '{row['retired']}' for retired; write yes or no")


def _devices(place: str, line: int, device: str | None, devices: float | None) -> int:
    if devices is None:
        return 1 if device else 0
    if devices != int(devices):
        raise InputError(f"{place} line {line} has {devices:g} devices, which is no whole number")
    if (device is None) != (devices == 0):
        named = f"the device {device}" if device else "no device"
        raise InputError(f"{place} line {line} names {named}, but counts {devices:g}")
    return int(devices)


def _skypilot_offers(place: str, table: pa.Table, day: str) -> Iterator[Instance]:
    """The rows of SkyPilot's layout: a row for each zone, some without a price, no network, no currency."""
    parts = Path(place).parts
    provider = parts[-2] if len(parts) > 1 and parts[-1] == "vms.csv" else Path(place).stem
    ours = {i.name: i for name in shipped_names() for i in open_catalogue(name).instances}
    memory_of: dict[str | None, float | None] = {None: None}
    for line, row in _rows(table, SKYPILOT + SKYPILOT_MORE):
        name, device = row["InstanceType"], row["AcceleratorName"]
        if name is None or row["Price"] is None:
            continue  # a device alone, or a machine that is not to be had now
        if device is None and name.startswith(GOOGLE_HOSTS_OF_DEVICES):
            continue
        number = _numbers_of(place, line, row)
        devices, info = number("AcceleratorCount") or 0.0, row["GpuInfo"]
        if devices != int(devices):
            continue  # a part of a device: nobody has measured those
        if info not in memory_of:
            memory_of[info] = _device_memory_gib(info)
        known = ours.get(name)
        yield Instance(
            name=name,
            provider=provider,
            region=row["Region"] or "",
            price=number("Price") or 0.0,
            spot_price=number("SpotPrice"),
            currency=SKYPILOT_CURRENCY,
            date=day,
            vcpus=number("vCPUs") or 0.0,
            memory_gib=number("MemoryGiB") or 0.0,
            device=device,
            devices=int(devices) if device else 0,
            device_memory_gib=memory_of[info],
            network_gbps=known.network_gbps if known else None,
            retired=known is not None and known.retired,
        )


def _device_memory_gib(info: str) -> float | None:
    """The memory of one device, from the Python literal that SkyPilot keeps of a cloud's answer."""
    try:
        return round(float(ast.literal_eval(info)["Gpus"][0]["MemoryInfo"]["SizeInMiB"]) / 1024, 2)
    except (ValueError, SyntaxError, TypeError, KeyError, IndexError):
        return None


def _cheapest(offers: Iterator[Instance], region: str | None) -> list[Instance]:
    """The cheapest offer of every machine; its spot price is the lowest of the same region."""
    best: dict[tuple[str, str], Instance] = {}
    for offer in offers:
        if region not in (None, offer.region):
            continue
        key = (offer.provider, offer.name)
        held = best.get(key)
        if held is None or offer.price < held.price:
            best[key] = offer
        elif offer.region == held.region and offer.spot_price is not None:
            lower = min(offer.spot_price, held.spot_price or math.inf)
            best[key] = replace(held, spot_price=lower)
    return sorted(best.values(), key=lambda instance: (instance.provider, instance.name))


def _numbers_of(place: str, line: int, row: Row) -> Callable[[str], float | None]:
    """A reader of the row's numbers, none of which may be negative."""

    def number(name: str) -> float | None:
        cell = row[name]
        if cell is None:
            return None
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise InputError(f"{place} line {line} has '{cell}' as {name}; it must be a number, 0 or more")
        return value

    return number
