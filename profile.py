"""Nodes on one experiment network, each with Docker, for Lockstep: a testbed for synchronous data-parallel training.

Each node is a whole machine. All are on one network besides the control network, 10.10.1.0/24: node0 is 10.10.1.1 and
becomes rank 0, node1 is 10.10.1.2 and becomes rank 1, and so on.

Instructions:
Wait until the column *Startup* of the *List View* says *Finished* for every node, which takes a few minutes. Each node
has then installed Docker, with its data on the disk at `/mydata`. If a node ends with anything else, the last
lines of `/var/log/lockstep-node.log` there say why, and how to try again.

The repository is at `/local/repository` on every node. Its `docs/cloudlab.md` says how to train on these nodes.
"""

# CloudLab asks for this name, which is also that of a module of Python's library. Where this folder stands ahead of the
# library, as in `python -m app train`, cProfile and torch would import this file. They get the library's.
if __name__ == "profile":
    import importlib.util
    import os
    import pathlib
    import sys

    spec = importlib.util.spec_from_file_location("profile", pathlib.Path(os.__file__).with_name("profile.py"))
    sys.modules["profile"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["profile"])

# From here on it is a script that the portal runs, in Python 2 or 3: no annotations, no f-strings.
else:
    import re

    import geni.portal as portal
    import geni.rspec.emulab  # noqa: F401  # nodes get block stores by it
    import geni.rspec.pg as pg

    PREFIX = "10.10.1"
    NETMASK = "255.255.255.0"
    FEWEST_NODES, MOST_NODES = 2, 250  # the network has 254 addresses
    LEAST_DISK, MOST_DISK = 20, 4000  # the image takes 1.3 GB, building it several more
    IMAGES = [
        ("urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU22-64-STD", "Ubuntu 22.04"),
        ("urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU24-64-STD", "Ubuntu 24.04"),
    ]

    context = portal.Context()
    context.defineParameter(
        "nodes",
        "Number of nodes",
        portal.ParameterType.INTEGER,
        4,
        longDescription="One rank runs on each node. From %d to %d." % (FEWEST_NODES, MOST_NODES),
    )
    context.defineParameter(
        "hardware_type",
        "Hardware type",
        portal.ParameterType.NODETYPE,
        "",
        longDescription="One type for all nodes, such as xl170 or c220g5; see the portal's list of free nodes. "
        "Empty: CloudLab chooses, and may mix types. A slower node then delays all others.",
    )
    context.defineParameter(
        "image",
        "Operating system",
        portal.ParameterType.IMAGE,
        IMAGES[0],
        IMAGES,
        longDescription="It supplies the packages of Docker. The ranks run in a container image, whatever you choose.",
    )
    context.defineParameter(
        "disk_gigabytes",
        "Disk for Docker in GB",
        portal.ParameterType.INTEGER,
        60,
        longDescription="A file system at /mydata on each node's disks, for Docker's images and containers: the root "
        "file system can be small. It is lost with the experiment. 0: Docker's data stays on the root file system. "
        "Otherwise from %d to %d." % (LEAST_DISK, MOST_DISK),
    )
    parameters = context.bindParameters()

    if not FEWEST_NODES <= parameters.nodes <= MOST_NODES:
        context.reportError(
            portal.ParameterError(
                "invalid nodes '%d'. Give a number from %d to %d. On a single machine, run scripts/up, which emulates "
                "several nodes." % (parameters.nodes, FEWEST_NODES, MOST_NODES),
                ["nodes"],
            )
        )
    if parameters.hardware_type and not re.match(r"^[A-Za-z0-9][A-Za-z0-9._-]*$", parameters.hardware_type):
        context.reportError(
            portal.ParameterError(
                "invalid hardware_type '%s'. Give the name of one type, such as xl170, or leave it empty."
                % parameters.hardware_type,
                ["hardware_type"],
            )
        )
    if parameters.disk_gigabytes != 0 and not LEAST_DISK <= parameters.disk_gigabytes <= MOST_DISK:
        context.reportError(
            portal.ParameterError(
                "invalid disk_gigabytes '%d'. Give a number from %d to %d, or 0 for no disk."
                % (parameters.disk_gigabytes, LEAST_DISK, MOST_DISK),
                ["disk_gigabytes"],
            )
        )
    context.verifyParameters()

    request = context.makeRequestRSpec()
    # Without a bandwidth: one below the interfaces' own could bring in shaping nodes between the machines.
    lan = request.LAN("lan")
    for number in range(parameters.nodes):
        node = request.RawPC("node%d" % number)
        node.disk_image = parameters.image
        if parameters.hardware_type:
            node.hardware_type = parameters.hardware_type

        interface = node.addInterface("if1")
        interface.addAddress(pg.IPv4Address("%s.%d" % (PREFIX, number + 1), NETMASK))
        lan.addInterface(interface)

        command = "sudo /local/repository/scripts/host/ready_node"
        if parameters.disk_gigabytes:
            disk = node.Blockstore("docker%d" % number, "/mydata")
            disk.size = "%dGB" % parameters.disk_gigabytes
            disk.placement = "any"
            command += " /mydata"
        node.addService(pg.Execute(shell="sh", command=command))  # at every boot

    context.printRequestRSpec(request)
