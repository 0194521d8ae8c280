from .read_table import read_table as read_table
