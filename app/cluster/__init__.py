"""How ranks find each other, form a group and detect which of them was lost."""
