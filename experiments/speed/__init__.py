"""Speed measurements, alone and beside other libraries."""
