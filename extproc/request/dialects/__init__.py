"""One file per body format: which keys spell which field, where they stand, what the text is.

Belongs here: reading a body into an `InferenceRequest` and writing changes back. Forbidden: deciding.
"""
