"""The names of all modes and compressors, without imports, so that settings can read them."""

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

# Modes that average any vector, such as compressed gradients and parameters: the subclasses of Exchange.
EXCHANGES = tuple(name for name in MODES if name not in ("none", "ddp", "bucketed_all_reduce"))

# Modes that support WIRE_PRECISION, because they average buffers. (`none` sends nothing.)
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

# To add a compressor, add its file to app/sync/compressors/, its line here, and one in FITS if it needs a certain mode.
COMPRESSORS = {
    "top_k": "TopK",
    "random_k": "RandomK",
    "sign": "Sign",
    "power_sgd": "PowerSgd",
}

# Modes that a compressor needs: top_k's messages cannot be added in transit, and sign's votes need a server.
FITS: dict[str, tuple[str, ...]] = {"top_k": ("gathered_all_reduce",), "sign": ("parameter_server",)}

# The default SYNC_MODE if only COMPRESSION or SYNC_EVERY is set.
PLAIN_EXCHANGE = "flat_all_reduce"
