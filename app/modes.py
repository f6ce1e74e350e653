"""The names of the modes: a table that imports nothing, so settings can read it too."""

# To add a mode, add its file to app/gradient_sync/ and its line here. The contract suite reads this table.
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
    "ddp": "Ddp",
    "bucketed_all_reduce": "BucketedAllReduce",
}

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
