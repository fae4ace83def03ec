"""Settings of the results' second copy, taken together.

Deliberately absent: any look at the place itself, which the copying machine checks.
"""

from pathlib import Path

from cluster import replica
from infra.reader import Reader

OF_BUCKET = (replica.ENDPOINT, replica.ACCESS, replica.SECRET)


def check(reader: Reader, data: Path, state: Path) -> None:
    """Note settings that `replicateTo` lacks, and a folder that ends with the stack.

    Args:
        reader: of the settings.
        data: folder of data that outlives the stack.
        state: folder of data that does not.
    """
    key, place = replica.TO, reader.raw.get(replica.TO, "").strip()
    given = [each for each in OF_BUCKET if reader.raw.get(each, "").strip()]
    if place.startswith(replica.BUCKET):
        if missing := [each for each in OF_BUCKET if each not in given]:
            bound = f"lacks {' and '.join(missing)}"
            action = "set what is missing, keys with `python -m engine config set --secret`"
            reader.fault(key, place, bound, action)
        return
    for each in given:
        bound = f"is of a bucket, and {key} = {place!r}"
        reader.fault(each, reader.raw[each], bound, f"remove it, or set {key} to s3://<bucket>")
    for name, folder in (("dataDir", data), ("stateDir", state)):
        if place and Path(place).is_relative_to(folder):
            bound = f"is in {name} ({folder}), and is lost with it"
            reader.fault(key, place, bound, "name a folder on another disk, or a bucket")
