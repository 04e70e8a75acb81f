/** What tests expect of unittest, and of a network. */
export const testing = String.raw`
def _unittest_asserts(module):
    names = {"assertEquals": "assertEqual", "assertNotEquals": "assertNotEqual", "assert_": "assertTrue",
             "assertAlmostEquals": "assertAlmostEqual", "assertNotAlmostEquals": "assertNotAlmostEqual",
             "assertRegexpMatches": "assertRegex", "assertNotRegexpMatches": "assertNotRegex",
             "assertRaisesRegexp": "assertRaisesRegex", "failUnless": "assertTrue", "failUnlessEqual": "assertEqual",
             "failUnlessRaises": "assertRaises", "failIf": "assertFalse", "failIfEqual": "assertNotEqual"}
    for old, new in names.items():
        _method("unittest-asserts", module.TestCase, old,
                lambda self, *args, _new=new, **kwargs: getattr(self, _new)(*args, **kwargs))


def _unittest_ids(module):
    """Names of tests as Python before 3.11 printed them."""
    def text(self):
        _trace("unittest-ids", "TestCase.__str__")
        cls = type(self)
        return "%s (%s.%s)" % (self._testMethodName, cls.__module__, cls.__qualname__)
    module.TestCase.__str__ = text


def _unittest_docs(module):
    """First lines of docstrings as Python before 3.7 took them: nothing when the text begins on the second line."""
    def description(self):
        _trace("unittest-docs", "TestCase.shortDescription")
        doc = self._testMethodDoc
        return doc.split("\n")[0].strip() or None if doc else None
    module.TestCase.shortDescription = description


def _local_httpbin(module):
    """Serves httpbin on the loopback interface, and names it where tests look for its address."""
    import threading
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
    try:
        from httpbin import app
    except ImportError:
        return

    class Server(WSGIServer):
        daemon_threads = True
        request_queue_size = 64

        def process_request(self, request, address):
            threading.Thread(target=self._answer, args=(request, address), daemon=True).start()

        def _answer(self, request, address):
            try:
                self.finish_request(request, address)
            except (IOError, OSError):
                pass
            finally:
                self.shutdown_request(request)

    class Handler(WSGIRequestHandler):
        def log_message(self, *args):
            pass

    server = make_server("127.0.0.1", 0, app, server_class=Server, handler_class=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:%d/" % server.server_port
    os.environ["HTTPBIN_URL"] = url
    _trace("local-httpbin", "HTTPBIN_URL")


def _connect_timeouts(module):
    """Connections that a network would swallow time out, as they do where there is a network."""
    import errno
    before = module.socket.connect

    def connect(self, address):
        try:
            return before(self, address)
        except OSError as error:
            if error.errno not in (errno.ENETUNREACH, errno.EHOSTUNREACH) or not self.gettimeout():
                raise
            _trace("connect-timeouts", "socket.connect")
            import time
            time.sleep(self.gettimeout())
            raise module.timeout("timed out")
    module.socket.connect = connect
`;
