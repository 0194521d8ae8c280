"""The code of the scripts in ``jobs/``: group jobs, destinations, reprocessing, cleaning."""
