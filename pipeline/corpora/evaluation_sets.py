"""WMT's evaluation sets as sacreBLEU defines them: archives with md5 and members.

Archives are downloaded like the training archives, since sacreBLEU's own download has no mirrors, cannot resume and
applies no data filter.
"""

from urllib.parse import urlsplit

from sacrebleu import DATASETS
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from pipeline.corpora.archives import Archive
from pipeline.errors import UserError


def archive_of(name: str, pair: str) -> Archive:
    """Returns the archive of sacreBLEU's set `name` for a language pair, e.g. "wmt14/full" and "en-de".

    Raises UserError if sacreBLEU has no such set, or not as one archive of SGML files.
    """
    dataset = DATASETS.get(name)
    urls, sums = getattr(dataset, "data", None) or [], getattr(dataset, "md5", None) or []
    if not isinstance(dataset, FakeSGMLDataset) or len(urls) != 1 or len(sums) != 1 or pair not in dataset.langpairs:
        raise UserError(f"sacreBLEU has no set {name!r} of SGML files for {pair}; choose another, e.g. wmt14/full")
    source, target = dataset.langpairs[pair][:2]
    return Archive(path=urlsplit(urls[0]).path.lstrip("/"), source=source, target=target, checksum=f"md5:{sums[0]}")
