"""The names of the modes and of the compressors: tables that import nothing, so settings can read them too."""

# To add a mode, add its file to app/sync/modes/ and its line here. The contract suite reads this table.
MODES = {
    "none": "NoSync",
    "gather_scatter": "GatherScatter",
    "send_recv": "SendRecv",
    "all_reduce": "AllReduce",
    "flat_all_reduce": "FlatAllReduce",
    "ring_all_reduce": "RingAllReduce",
    "tree": "Tree",
    "recursive_doubling": "RecursiveDoubling",
    "halving_doubling": "HalvingDoubling",
    "hierarchical": "Hierarchical",
    "parameter_server": "ParameterServer",
    "gathered_all_reduce": "GatheredAllReduce",
    "ddp": "Ddp",
    "bucketed_all_reduce": "BucketedAllReduce",
}

# Those that can average any vector, and so also what is compressed, and parameters: they are exchanges.
EXCHANGES = tuple(name for name in MODES if name not in ("none", "ddp", "bucketed_all_reduce"))

# Those that WIRE_PRECISION applies to: they average buffers. (`none` has nothing to send.)
ANY_WIRE_PRECISION = (
    "none",
    "flat_all_reduce",
    "ring_all_reduce",
    "tree",
    "recursive_doubling",
    "halving_doubling",
    "hierarchical",
    "parameter_server",
    "ddp",
    "bucketed_all_reduce",
)

# To add a compressor, add its file to app/sync/compressors/, its line here, and one below if only some exchanges fit.
COMPRESSORS = {
    "top_k": "TopK",
    "random_k": "RandomK",
    "sign": "Sign",
    "power_sgd": "PowerSgd",
}

# Messages that add up pass any exchange. What top_k sends does not: everyone needs all of it. Votes need a counter.
FITS: dict[str, tuple[str, ...]] = {"top_k": ("gathered_all_reduce",), "sign": ("parameter_server",)}

# What SYNC_MODE is where only COMPRESSION or SYNC_EVERY is given.
PLAIN_EXCHANGE = "flat_all_reduce"
