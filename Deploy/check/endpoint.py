"""The endpoint of the check's webhook: takes every request, and prints the types of the records, one a line.

  endpoint.py ADDRESS PORT
"""

import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for record in body["records"]:
            print(record["type"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
