"""Machines that tests rent."""

from manyhands.plan.catalogue import Catalogue, Instance


def instance(name: str, price: float = 1.0, **facts) -> Instance:
    usual = {
        "provider": "test",
        "region": "here",
        "spot_price": None,
        "currency": "USD",
        "date": "2026-01-01",
        "vcpus": 4,
        "memory_gib": 16,
        "device": None,
        "devices": 0,
        "device_memory_gib": None,
        "network_gbps": 1.0,
        "retired": False,
    }
    return Instance(name=name, price=price, **{**usual, **facts})


SMALL = instance("small", 0.1)
LARGE = instance("large", 0.45, vcpus=16, network_gbps=5.0)
GPUS = instance("gpu.4xlarge", 4.0, device="M60", devices=4, vcpus=64)
CATALOGUE = Catalogue("test", [SMALL, LARGE, GPUS])
