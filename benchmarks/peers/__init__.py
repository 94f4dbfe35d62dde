"""Other packages, as the tables use them; each is imported where it is used."""
