import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const out = "../src/crannog/server/pages/built";

/** Writes each file of text compressed beside itself, so that the server need not compress it at every request. */
function packed(): Plugin {
  return {
    name: "packed",
    apply: "build",
    closeBundle() {
      const folder = join(import.meta.dirname, out, "assets");
      for (const name of readdirSync(folder)) {
        if (/\.(js|css|svg)$/.test(name)) {
          const plain = readFileSync(join(folder, name));
          writeFileSync(join(folder, `${name}.gz`), gzipSync(plain, { level: 9 }));
          writeFileSync(join(folder, `${name}.br`), brotliCompressSync(plain));
        }
      }
    },
  };
}

/** Writes a hash of the sources beside the built pages, by which the tests tell whether these are of them. */
function sourced(): Plugin {
  return {
    name: "sourced",
    apply: "build",
    closeBundle() {
      const hash = createHash("sha256");
      const names = readdirSync(join(import.meta.dirname, "src"), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name))
        .sort();
      for (const name of names) hash.update(readFileSync(name));
      writeFileSync(join(import.meta.dirname, out, "source.sha256"), hash.digest("hex"));
    },
  };
}

/** Does what the server does for the built pages: says where the root is. */
const based: Plugin = {
  name: "based",
  apply: "serve",
  transformIndexHtml: (html) => html.replace('<base href="./"', '<base href="/"'),
};

// CRANNOG_SERVER is where `npm run dev` finds a server; the proxy makes its answers same-origin.
const server = process.env.CRANNOG_SERVER ?? "http://127.0.0.1:7117";

export default defineConfig({
  // Relative addresses: the server writes a <base> into the document, so the pages work under any prefix.
  base: "./",
  appType: "spa",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
  server: {
    port: 5173,
    proxy: {
      "/api": {
        target: server,
        changeOrigin: true,
        configure: (proxy) => proxy.on("proxyReq", (request) => request.setHeader("origin", server)),
      },
    },
  },
  plugins: [packed(), sourced(), based],
});
