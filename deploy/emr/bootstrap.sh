#!/bin/bash
# A bootstrap action: every node of the cluster gets manyhands, in the same place.
# Its argument is the S3 address of the wheel that `pip wheel --no-deps .` has made with Python 3.11.
set -euo pipefail
sudo dnf install --quiet --assumeyes python3.11
aws s3 cp "$1" /tmp/
sudo python3.11 -m venv /opt/manyhands
sudo /opt/manyhands/bin/pip install --quiet "/tmp/$(basename "$1")[s3]" 'pandas>=2.2,<3'
