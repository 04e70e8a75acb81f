import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { id, PortLab, tokens } from "./port-lab.ts";

let lab: PortLab;
beforeEach(async () => {
  lab = await PortLab.open();
});
afterEach(() => lab.close());

describe("a guarded port", () => {
  test("is closed without a token, and with one that is wrong, another port's or another sandbox's", async () => {
    const other = SandboxId.parse("zbcdefghij0123456789");
    for (const wrong of [undefined, "", "x", tokens.tokenFor(id, lab.port + 1), tokens.tokenFor(other, lab.port)]) {
      const headers: Record<string, string> = wrong === undefined ? {} : { "x-port-token": wrong };
      const response = await fetch(lab.url("/"), { headers });
      expect(response.status).toBe(403);
      const byQuery = await fetch(lab.url(`/?atoll_token=${wrong ?? ""}`), {
        headers: { cookie: `atoll_port=${wrong}` },
      });
      expect(await byQuery.text()).toContain("This port is guarded");
    }
    expect(lab.seen).toHaveLength(0);
  });

  test("opens with the header", async () => {
    expect(await (await lab.get("/")).text()).toBe("inside");
    expect(lab.seen[0]?.headers).not.toHaveProperty("x-port-token");
  });

  test("converts a browser's token into a cookie for this port alone", async () => {
    const page = { accept: "text/html,*/*" };
    const first = await fetch(lab.url(`/a?b=1&atoll_token=${lab.token}&c=%20`), { redirect: "manual", headers: page });
    expect(first.status).toBe(302);
    expect(first.headers.get("location")).toBe(`/p/${id}/${lab.port}/a?b=1&c=%20`);
    const cookie = first.headers.get("set-cookie") ?? "";
    expect(cookie).toBe(`atoll_port=${lab.token}; Path=/p/${id}/${lab.port}/; HttpOnly; SameSite=Lax`);
    const second = await fetch(lab.url("/a"), { headers: { ...page, cookie: `x=1; ${cookie.split(";")[0]}; y=2` } });
    expect(await second.text()).toBe("inside");
    expect(lab.seen).toHaveLength(1);
    expect(lab.seen[0]?.headers.cookie).toBe("x=1; y=2");
  });

  test("accepts the token in the query at once, and does not pass the token on", async () => {
    const response = await fetch(lab.url(`/a?atoll_token=${lab.token}&b`), { method: "POST", body: "x" });
    expect(await response.text()).toBe("inside");
    expect(lab.seen[0]?.url).toBe("/a?b");
  });

  test("is open to all when it is public", async () => {
    lab.isPublic = true;
    expect(await (await fetch(lab.url("/"))).text()).toBe("inside");
    expect(lab.proxy.describe(id, lab.port)).toMatchObject({ isPublic: true });
    expect(lab.proxy.describe(id, lab.port)).not.toHaveProperty("token");
  });
});

describe("addresses", () => {
  test("by path: the prefix is removed, and the rest stays as it is", async () => {
    await (await lab.get("/a/../b//c%2f?d=[e]&f")).text();
    const paths = [lab.seen[0]?.url];
    await lab.raw([
      `GET /p/${id}/${lab.port}/x/../y%2e?q HTTP/1.1`,
      `Host: h`,
      `X-Port-Token: ${lab.token}`,
      "Connection: close",
    ]);
    expect([...paths, lab.seen[1]?.url]).toEqual(["/b//c%2f?d=[e]&f", "/x/../y%2e?q"]);
  });

  test("by host name", async () => {
    const lines = (host: string): string[] => [
      "GET /p/x HTTP/1.1",
      `Host: ${host}`,
      `X-Port-Token: ${lab.token}`,
      "Connection: close",
    ];
    expect(await lab.raw(lines(`${lab.port}-${id}.PORTS.test:8080`))).toContain("inside");
    expect(lab.seen[0]?.url).toBe("/p/x");
    expect(await lab.raw(lines(`${lab.port}-${id}.evil.test`))).toContain("404");
    expect(await lab.raw(lines(`${lab.port}-${id}.x.ports.test`))).toContain("404");
    expect(lab.proxy.describe(id, 80).url).toBe(`http://80-${id}.ports.test:${new URL(lab.base).port}/`);
  });

  test.for(["/p/", "/p/short/80/", `/p/${id}/0/`, `/p/${id}/70000/`, `/p/${id}/080/`, `/p/${id}/80x/`, "/px", "/"])(
    "%s is not the address of a port",
    async (path) => {
      expect((await fetch(`${lab.base}${path}`)).status).toBe(404);
    },
  );

  test("a page without the slash at its end is redirected to it", async () => {
    const response = await lab.get("?x=1", { headers: { accept: "text/html" } });
    expect(response.headers.get("location")).toBe(`/p/${id}/${lab.port}/?x=1`);
  });
});

describe("a slow reader", () => {
  test("makes the program inside wait", async () => {
    let written = 0;
    lab.answer = (_request, response) => {
      const push = (): void => {
        while (written < 256 * 1024 * 1024) {
          written += 65_536;
          if (!response.write(Buffer.alloc(65_536))) return void response.once("drain", push);
        }
        response.end();
      };
      push();
    };
    const request = httpRequest(lab.url("/"), { headers: { "x-port-token": lab.token } }).end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.pause();
    let last = -1;
    await expect
      .poll(
        () => {
          const isStill = written === last;
          last = written;
          return isStill;
        },
        { interval: 200 },
      )
      .toBe(true);
    expect(written).toBeLessThan(64 * 1024 * 1024);
    response.destroy();
  });
});

describe("failures", () => {
  test("of a port without a listener are a 502", async () => {
    lab.inside.close();
    await once(lab.inside, "close");
    const response = await lab.get("/");
    expect([response.status, await response.text()]).toEqual([
      502,
      `Nothing listens on port ${lab.port} in sandbox ${id}.\n`,
    ]);
  });

  test.for([
    [new SandboxError("sandbox_ended", "Cannot go on: it was killed"), 410],
    [new SandboxError("not_found", "Cannot find sandbox"), 410],
    [new SandboxError("invalid_state", "Cannot open a port of a sandbox that is paused"), 503],
    [new Error("secret of the host"), 502],
  ] as const)("%s is a %i", async ([error, status]) => {
    lab.dialError = error;
    const response = await lab.get("/");
    expect(response.status).toBe(status);
    expect(await response.text()).not.toContain("secret");
  });

  test("of a program that does not speak HTTP are a 502 with a reason", async () => {
    const mute = createTcpServer((socket) => socket.end("SSH-2.0-x\r\n"));
    const mutePort = await lab.listen(mute);
    const response = await fetch(`${lab.base}/p/${id}/${mutePort}/`, {
      headers: { "x-port-token": tokens.tokenFor(id, mutePort) },
    });
    expect(response.status).toBe(502);
    expect(await response.text()).toContain("did not answer as an HTTP server does");
  });

  test("in the middle of a reply end the client's connection", async () => {
    lab.answer = (_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => response.destroy());
    };
    await expect(lab.get("/").then((response) => response.text())).rejects.toThrow("terminated");
  });

  test("of the client's connection are passed on to the program inside", async () => {
    const abort = new AbortController();
    let hasLeft: Promise<unknown> = Promise.resolve();
    lab.answer = (_request, response) => {
      hasLeft = once(response, "close");
      response.write("x");
    };
    await lab.get("/", { signal: abort.signal });
    abort.abort();
    await hasLeft;
    await expect.poll(() => lab.counts.at(-1)).toBe(0);
  });

  test("a reply before the end of the body ends the connection, not the reply", async () => {
    lab.answer = (_request, response) => void response.writeHead(413).end("too much");
    const text = await lab.raw(
      [`POST /p/${id}/${lab.port}/ HTTP/1.1`, "Host: h", `X-Port-Token: ${lab.token}`, "Content-Length: 100000000"],
      "x".repeat(1000),
    );
    expect(text).toMatch(/^HTTP\/1\.1 413 [^]*connection: close[^]*too much/i);
  });
});

test("connections are counted while they are open, and limited", async () => {
  const waiting: (() => void)[] = [];
  lab.answer = (_request, response) => void waiting.push(() => response.end());
  const busy = [lab.get("/"), lab.get("/"), lab.get("/")];
  await expect.poll(() => waiting.length).toBe(3);
  expect((await lab.get("/")).status).toBe(503);
  for (const finish of waiting) finish();
  await Promise.all(busy);
  await expect.poll(() => lab.counts).toEqual([1, 2, 3, 2, 1, 0]);
});

test("a listener on the other loopback address is found", async () => {
  const six = createServer((_request, response) => void response.end("six"));
  const sixPort = await lab.listen(six, "::1");
  const response = await fetch(`${lab.base}/p/${id}/${sixPort}/`, {
    headers: { "x-port-token": tokens.tokenFor(id, sixPort) },
  });
  expect(await response.text()).toBe("six");
});
