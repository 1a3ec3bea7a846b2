"""Take the prices of a fresh vms.csv of SkyPilot over into a catalogue of ours.

    python tools/refresh_catalogue.py VMS_CSV CATALOGUE_CSV

The catalogue keeps its rows: what vms.csv no longer offers in a row's region is marked as retired.
"""

import csv
import io
import sys
from pathlib import Path

from manyhands.plan.catalogue import open_catalogue
from manyhands.storage.files import writing


def refresh(vms: str, ours: Path) -> str:
    """The catalogue as it will be."""
    rows = list(csv.DictReader(io.StringIO(ours.read_text())))
    regions = {row["region"] for row in rows}
    fresh = {(r, i.name): i for r in regions for i in open_catalogue(vms, region=r).instances}
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        offer = fresh.get((row["region"], row["instance"]))
        if offer is None:
            row["retired"] = "yes"
        else:
            spot = "" if offer.spot_price is None else f"{offer.spot_price:.6g}"
            row |= {"price_per_hour": f"{offer.price:.8g}", "spot_price_per_hour": spot}
            row |= {"date": offer.date, "spot_date": offer.date if spot else ""}
        writer.writerow(row)
    return out.getvalue()


if __name__ == "__main__":
    source, target = sys.argv[1:]
    text = refresh(source, Path(target))
    with writing(target) as file:
        file.write(text.encode())
