"""The settings that take a text of a certain form: what they accept, and the words that explain it."""

import re

from app.modes import MODES
from app.settings import link_rates
from app.settings.kinds import Form, OneOfOrOwn, Pattern
from app.settings.numerals import LEADING, decimals, numerals

LEAST_MEMORY_MEBIBYTES = 320  # 240 are too few for rank 0 of four ranks of LeNet-5, which also draws the report
MOST_MEMORY_GIBIBYTES = 16_384  # no machine that runs containers has more

MOST_WORKERS = 100
MOST_RESTARTS = 1000
MOST_CPUS = 1024

BYTE = numerals(0, 255)  # of an address

SYNC_MODE = OneOfOrOwn(tuple(MODES))
MODEL = OneOfOrOwn(("vgg11", "lenet5", "resnet18"))
DATASET = OneOfOrOwn(("shapes", "digits", "cifar10", "mnist"))
RUN_NAME = Form(
    re.compile(
        r"(?!(?:latest|benchmarks|calibrations|comparisons|experiments|faults|predictions|verifications|auto|never)$)"
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
    ).fullmatch,
    "at most 100 letters, digits, '.', '_' or '-', a letter or digit first, and not 'latest', 'benchmarks', "
    "'calibrations', 'comparisons', 'experiments', 'faults', 'predictions', 'verifications', 'auto' or 'never'",
)
RESUME = Form(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch, "auto, never, or the name of a run in results/")
LINK_RATE = Form(link_rates.read_rate, link_rates.RATE_WORDS)
LINK_RATE_BY_RANK = Form(link_rates.read_rate_by_rank, link_rates.RATE_BY_RANK_WORDS)
LINK_DELAY = Form(link_rates.read_delay, link_rates.DELAY_WORDS)
LINK_LOSS = Form(link_rates.read_loss, link_rates.LOSS_WORDS)
HOST = r"(?=[^,]{1,253}(,|$))[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]{1,63})*"

MASTER_ADDR = Form(
    re.compile(HOST).fullmatch,
    "a host's name or IPv4 address, of letters, digits, '.', '_' or '-'",
)
NODES = Form(re.compile(f"{HOST}(,{HOST})*").fullmatch, "hosts' names or IPv4 addresses, separated by commas")
WORKERS = Pattern.of(f"{LEADING}{numerals(0, MOST_WORKERS)}", f"a whole number, 0 to {MOST_WORKERS}")
MAX_RESTARTS = Pattern.of(f"{LEADING}{numerals(0, MOST_RESTARTS)}", f"a whole number, 0 to {MOST_RESTARTS}")
RANK_CPUS = Pattern.of(decimals(2, MOST_CPUS), f"a number, 0.01 to {MOST_CPUS}")  # Docker refuses less than 0.01
RANK_MEMORY = Pattern.of(
    f"({numerals(LEAST_MEMORY_MEBIBYTES * 1024, MOST_MEMORY_GIBIBYTES * 1024**2)}[kK]|"
    f"{numerals(LEAST_MEMORY_MEBIBYTES, MOST_MEMORY_GIBIBYTES * 1024)}[mM]|"
    f"{numerals(1, MOST_MEMORY_GIBIBYTES)}[gG])[bB]?",
    f"a whole number with k, m or g, such as 2g, from {LEAST_MEMORY_MEBIBYTES}m to {MOST_MEMORY_GIBIBYTES}g",
)
# A public network would hide real hosts behind the ranks.
NETWORK_PREFIX = Pattern.of(
    f"(10[.]{BYTE}|172[.]{numerals(16, 31)}|192[.]168|100[.]{numerals(64, 127)})[.]{BYTE}",
    "the first three numbers of a private IPv4 network, such as 10.77.1: within 10, 172.16 to 172.31, 192.168, or "
    "100.64 to 100.127",
)
# Python and POSIX write "no control characters" differently.
DATA_FOLDER = Pattern(
    re.compile(r"(~|[.][.]?)?/[^\x00-\x1f\x7f]+").fullmatch,
    "the path of a folder that exists, beginning with /, ./, ../ or ~/",
    "(~|[.][.]?)?/[^[:cntrl:]]+",
)
NETWORK = Pattern.of("host|overlay", "host, overlay")
EXPERIMENT_NETWORK = Pattern.of(
    f"({BYTE}[.]){{3}}{BYTE}/{numerals(8, 30)}", "an IPv4 network with its length, 8 to 30, such as 10.10.1.0/24"
)
