"""Records to numbers and sentences: who waited for whom, what bounds a step, what was learned."""
