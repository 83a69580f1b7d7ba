"""From finished Runs to numbers: reading records, scores, the table of comparable Runs."""
