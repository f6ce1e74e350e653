"""The configurations of `benchmark step`: modes with their settings, and the course script's. Imports no torch."""

from argparse import ArgumentTypeError
from dataclasses import dataclass

from app.machine.say import shown
from app.modes import MODES
from app.settings import environment
from app.settings.settings import FIELDS, Settings

FLOOR = "none"
ONE_NODE = "one_node"
COURSE_DDP = "course_ddp"
# The course script's own configurations, each with its counterpart.
COURSE = {
    "course_one_node": ONE_NODE,
    "course_gather_scatter": "gather_scatter",
    "course_all_reduce": "all_reduce",
    COURSE_DDP: "ddp",
}
TUNED = "tuned_ddp"
COUNTERPARTS = {ours: course for course, ours in COURSE.items()}

FASTEST = ("flat_all_reduce", "bucketed_all_reduce")  # modes that are also timed in bf16, if the CPU supports it


@dataclass(frozen=True)
class BenchmarkSetup:
    """A configuration by its name: a mode, with NAME=value settings after it, joined by +, or a course script's."""

    name: str

    @property
    def of_the_house(self) -> bool:
        return self.name not in COURSE and self.name != TUNED

    @property
    def alone(self) -> bool:
        """Whether rank 0 trains by itself."""
        return self.name.partition("+")[0] in (ONE_NODE, "course_one_node")

    @property
    def mode(self) -> str:
        """Its SYNC_MODE; a single node needs none."""
        first = self.name.partition("+")[0]
        return FLOOR if first == ONE_NODE else first

    @property
    def given(self) -> dict[str, str]:
        return dict(part.split("=", 1) for part in self.name.split("+")[1:])

    def exact(self, base: Settings) -> bool:
        """Whether it computes and sends in fp32."""
        settings = self.settings(base)
        return settings.training.precision == settings.averaging.wire_precision == "fp32"

    @property
    def synchronises(self) -> bool:
        return not self.alone and self.mode != FLOOR

    def settings(self, base: Settings) -> Settings:
        texts = {name.upper(): str(value) for name, value in base.values(only=base.given).items()}
        own = {"BATCH_NORM": "local"} if self.alone else {}
        return environment.of(texts | own | {"SYNC_MODE": self.mode} | self.given)


def setup(text: str) -> BenchmarkSetup:
    name, *given = text.split("+")
    allowed = (ONE_NODE, *MODES, *COURSE, TUNED)
    if name not in allowed or (given and name in (*COURSE, TUNED)):
        raise ArgumentTypeError(
            f"unknown configuration '{shown(text)}'. Choose from: {', '.join(allowed)}. Append settings to a mode of "
            "Lockstep, such as ddp+PRECISION=bf16"
        )
    for each in given:
        setting, equals, _ = each.partition("=")
        if not equals or setting.lower() not in FIELDS:
            raise ArgumentTypeError(f"unknown setting '{shown(each)}' in '{shown(text)}'. Write NAME=value")
    own = BenchmarkSetup(text)
    if own.of_the_house:
        for problem in environment.problems({"SYNC_MODE": own.mode} | own.given).values():
            raise ArgumentTypeError(problem)
    return own


def usual(bfloat16: bool) -> list[BenchmarkSetup]:
    """All configurations, each after its counterpart."""
    names = ["course_one_node", ONE_NODE, FLOOR]
    for mode in MODES:
        if mode != FLOOR:
            names += [COUNTERPARTS[mode], mode] if mode in COUNTERPARTS else [mode]
    names += [TUNED, *(f"{mode}+WIRE_PRECISION=bf16" for mode in FASTEST)]
    if bfloat16:
        names += ["ddp+PRECISION=bf16", *(f"{mode}+PRECISION=bf16+WIRE_PRECISION=bf16" for mode in FASTEST)]
    return [BenchmarkSetup(name) for name in names]
