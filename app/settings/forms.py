"""The settings that take a text of a certain form: what they accept, and the words that explain it."""

import re

from app.modes import MODES
from app.settings import link_rates
from app.settings.kinds import Form, OneOf, Pattern
from app.settings.numerals import numerals

LEAST_MEMORY_MEBIBYTES = 128  # with less, no rank can start

SYNC_MODE = OneOf(tuple(MODES))
RUN_NAME = Form(
    re.compile(r"(?!(?:latest|comparisons|experiments)$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch,
    "at most 100 letters, digits, '.', '_' or '-', a letter or digit first, and not 'latest', 'comparisons' or "
    "'experiments'",
)
LINK_RATE = Form(link_rates.read_rate, link_rates.RATE_WORDS)
LINK_RATE_BY_RANK = Form(link_rates.read_rate_by_rank, link_rates.RATE_BY_RANK_WORDS)
LINK_DELAY = Form(link_rates.read_delay, link_rates.DELAY_WORDS)
LINK_LOSS = Form(link_rates.read_loss, link_rates.LOSS_WORDS)
RANK_MEMORY = Pattern.of(
    f"({numerals(LEAST_MEMORY_MEBIBYTES * 1024)}[kK]|{numerals(LEAST_MEMORY_MEBIBYTES)}[mM]|{numerals(1)}[gG])[bB]?",
    f"a whole number with k, m or g, such as 2g, and at least {LEAST_MEMORY_MEBIBYTES}m",
)
NETWORK_PREFIX = Pattern.of(
    f"({numerals(1, 126)}|{numerals(128, 223)})[.]{numerals(0, 255)}[.]{numerals(0, 255)}",
    "the first three numbers of an IPv4 network, such as 10.77.1",
)
