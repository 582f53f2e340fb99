"""Files that survive a kill: locks, atomic replacement, append-only files, hashes. Imports only `core`.

`locks` one process at a time; `atomic` files and folders that are whole or absent, alone or several together;
`append_only` growing files; `json_files` JSON objects; `tensors` safetensors of anybody's; `hashes` SHA-256; `paths`
checks of a place; `log_lines` logging above a line that is drawn in place.
"""
