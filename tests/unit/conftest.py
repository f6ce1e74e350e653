"""Hypothesis sets no deadline here: how long a case takes is the machine's affair."""

from hypothesis import settings

settings.register_profile("usual", deadline=None)
settings.load_profile("usual")
