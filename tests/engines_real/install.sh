#!/bin/sh
# install.sh ENGINE: a venv of its own for one real engine, in .engines/ENGINE, finished when .installed stands in it.
#
# The requirements name every package, so nothing is resolved: pytriton asks for a dozen packages that its server
# does not need. PYTHON chooses the interpreter (3.11 or 3.12 for Triton: its NumPy has no wheels for later ones).
set -eu
engine=$1
here=$(dirname "$0")
venv=.engines/$engine

say() { echo "engines: $engine: $*"; }
ask() { "$venv/bin/python" -c "import sys, sysconfig; print($1)"; }

say "making $venv"
rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"

say "installing $(grep -c '^[^#]' "$here/requirements-$engine.txt") packages"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$here/requirements-$engine.txt"

case $engine in
vllm)
  "$venv/bin/python" "$here/tiny_hf.py" "$venv/tiny" ;;
triton)
  # The server looks for the stub in the backend's folder. A link, not a copy: the stub finds its libraries
  # from where it really stands, and without them the server waits for it for ever.
  server=$(ask 'sysconfig.get_path("purelib")')/pytriton/tritonserver
  stub=python_backend_stubs/$(ask '"%d.%d" % sys.version_info[:2]')/triton_python_backend_stub
  ln -sf "../../$stub" "$server/backends/python/triton_python_backend_stub"
  missing=$(LD_LIBRARY_PATH=$(ask 'sysconfig.get_config_var("LIBDIR")') ldd "$server/$stub" | sed -n 's/^\s*\(.*\) => not found/\1/p')
  if [ -n "$missing" ]; then
    say "its Python backend needs $missing (in Debian: libpython3.11)" >&2
    exit 1
  fi ;;
llamacpp)
  say "writing a model of random weights"
  "$venv/bin/python" "$here/tiny_gguf.py" "$venv/tiny.gguf" ;;
esac

touch "$venv/.installed"
say "ready"
