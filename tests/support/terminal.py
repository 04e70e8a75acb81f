"""Runs a program in a new terminal.

Orders are read from stdin as lines of JSON. Output of the program goes to stdout. Its exit code and the
terminal's modes go to stderr as JSON.
"""
import fcntl, json, os, pty, select, signal, struct, sys, termios


def resize(terminal, rows, cols):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def modes(terminal):
    flags = termios.tcgetattr(terminal)
    return {
        "newlines": bool(flags[1] & termios.OPOST),
        "echo": bool(flags[3] & termios.ECHO),
        "canonical": bool(flags[3] & termios.ICANON),
        "signals": bool(flags[3] & termios.ISIG),
    }


def carry_out(order, terminal, pid):
    if "type" in order:
        os.write(terminal, order["type"].encode())
    if "resize" in order:
        resize(terminal, *order["resize"])
        os.kill(pid, signal.SIGWINCH)
    if "signal" in order:
        os.kill(pid, order["signal"])


ready, go = os.pipe()
pid, terminal = pty.fork()
if pid == 0:
    os.read(ready, 1)
    os.execvp(sys.argv[1], sys.argv[1:])
resize(terminal, 24, 80)
os.write(go, b"x")
orders, has_orders = b"", True
while True:
    readable, _, _ = select.select([terminal, 0] if has_orders else [terminal], [], [])
    if 0 in readable:
        data = os.read(0, 65536)
        has_orders = data != b""
        *lines, orders = (orders + data).split(b"\n")
        for line in lines:
            carry_out(json.loads(line), terminal, pid)
    if terminal in readable:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        os.write(1, data)
status = os.waitpid(pid, 0)[1]
code = os.waitstatus_to_exitcode(status)
sys.stderr.write(json.dumps({"exitCode": code, "modes": modes(terminal)}))
