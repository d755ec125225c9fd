"""Tables of many kinds, as people have them: few rows, atoms, few values, text, gaps, dates, copies of rows."""
