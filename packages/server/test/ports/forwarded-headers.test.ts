import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { id, PortLab } from "./port-lab.ts";

let lab: PortLab;
beforeEach(async () => {
  lab = await PortLab.open();
});
afterEach(() => lab.close());

describe("the request that the program inside gets", () => {
  test("has a host that the program knows, and where the request came from", async () => {
    await lab.get("/", {
      headers: { "x-forwarded-for": "6.6.6.6", "x-forwarded-host": "evil", forwarded: "for=6.6.6.6", origin: lab.base },
    });
    expect(lab.seen[0]?.headers).toMatchObject({
      host: `localhost:${lab.port}`,
      origin: `http://localhost:${lab.port}`,
      "x-forwarded-for": "127.0.0.1",
      "x-forwarded-host": new URL(lab.base).host,
      "x-forwarded-proto": "http",
      "x-forwarded-prefix": `/p/${id}/${lab.port}`,
    });
    expect(lab.seen[0]?.headers).not.toHaveProperty("forwarded");
  });

  test("has nothing of the client's connection, and no key of this server", async () => {
    await lab.raw([
      `GET /p/${id}/${lab.port}/ HTTP/1.1`,
      "Host: h",
      `X-Port-Token: ${lab.token}`,
      "Connection: close, X-Secret",
      "X-Secret: 1",
      "Proxy-Authorization: Basic eA==",
      "TE: trailers",
      "Authorization: Bearer atk_secret",
      "X-Atoll-Sandbox-Token: sbt_secret",
      "X-Kept: 1",
      "X-Kept: 2",
    ]);
    const { headers } = lab.seen[0] ?? {};
    expect(headers?.["x-kept"]).toBe("1, 2");
    for (const name of ["x-secret", "proxy-authorization", "te", "authorization", "x-atoll-sandbox-token"]) {
      expect(headers).not.toHaveProperty(name);
    }
  });

  test("has credentials of other kinds", async () => {
    await lab.get("/", { headers: { authorization: "Basic dTpw" } });
    expect(lab.seen[0]?.headers.authorization).toBe("Basic dTpw");
  });

  test("has a body of known length, and one of unknown length", async () => {
    lab.answer = (request, response) => void request.pipe(response);
    expect(await (await lab.get("/", { method: "PUT", body: "known" })).text()).toBe("known");
    expect(lab.seen[0]?.headers).toMatchObject({ "content-length": "5" });
    const text = await lab.raw(
      [
        `GET /p/${id}/${lab.port}/ HTTP/1.1`,
        "Host: h",
        `X-Port-Token: ${lab.token}`,
        "Transfer-Encoding: chunked",
        "Connection: close",
      ],
      "3\r\nabc\r\n0\r\n\r\n",
    );
    expect(text).toContain("abc");
    expect(lab.seen[1]?.headers).toMatchObject({ "transfer-encoding": "chunked" });
  });
});

describe("the reply that the client gets", () => {
  test("has the status, text and fields of the program, except those of the connection", async () => {
    lab.answer = (_request, response) => {
      response.writeHead(418, "Short and stout", {
        "x-a": ["1", "2"],
        "keep-alive": "timeout=99",
        "alt-svc": "h3=evil",
      });
      response.end("tea");
    };
    const response = await lab.get("/");
    expect([response.status, response.statusText, await response.text()]).toEqual([418, "Short and stout", "tea"]);
    expect(response.headers.get("x-a")).toBe("1, 2");
    expect(response.headers.get("keep-alive")).not.toBe("timeout=99");
    expect(response.headers.has("alt-svc")).toBe(false);
  });

  test("has no header that applies to the server's whole origin", async () => {
    lab.answer = (_request, response) => {
      response.setHeader("service-worker-allowed", "/");
      response.setHeader("clear-site-data", '"*"');
      response.setHeader("nel", "{}");
      response.setHeader("strict-transport-security", "max-age=1");
      response.setHeader("set-cookie", [
        "a=1; Path=/; Domain=127.0.0.1; HttpOnly",
        "b=2",
        "c=3; path=/deep",
        "atoll_port=forged; Path=/",
        "__Host-d=4; Path=/; Secure",
      ]);
      response.end();
    };
    const { headers } = await lab.get("/");
    for (const name of ["service-worker-allowed", "clear-site-data", "nel", "strict-transport-security"]) {
      expect(headers.has(name)).toBe(false);
    }
    const prefix = `/p/${id}/${lab.port}`;
    expect(headers.getSetCookie()).toEqual([
      `a=1; HttpOnly; Path=${prefix}/`,
      `b=2; Path=${prefix}/`,
      `c=3; Path=${prefix}/deep`,
    ]);
  });

  test.for([
    ["/login", "/p/ID/PORT/login"],
    ["http://localhost:PORT/x?y", "/p/ID/PORT/x?y"],
    ["http://127.0.0.1:PORT", "/p/ID/PORT/"],
    ["next", "next"],
    ["https://example.com/", "https://example.com/"],
    ["//example.com/", "//example.com/"],
  ] as const)("redirects to %s as to %s", async ([from, to]) => {
    const fill = (text: string): string => text.replace("ID", id).replace("PORT", String(lab.port));
    lab.answer = (_request, response) => void response.writeHead(302, { location: fill(from) }).end();
    expect((await lab.get("/")).headers.get("location")).toBe(fill(to));
  });

  test("has no body for HEAD and 304", async () => {
    lab.answer = (request, response) => {
      response.writeHead(request.method === "HEAD" ? 200 : 304, { "content-length": "1000", etag: "x" }).end();
    };
    expect((await lab.get("/", { method: "HEAD" })).headers.get("content-length")).toBe("1000");
    expect((await lab.get("/")).status).toBe(304);
  });

  test("has each piece when it comes, not all at the end", async () => {
    let more: () => void = () => undefined;
    lab.answer = (_request, response) => {
      response.write("one");
      more = () => response.end("two");
    };
    const reader = (await lab.get("/")).body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("one");
    more();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("two");
  });
});
