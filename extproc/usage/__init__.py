"""From the bytes of an answer, however cut, to a `UsageSample`: pure, with bounded memory.

Here: JSON answers and event streams of the engines. Not here: anything that could change or delay an answer.
"""
