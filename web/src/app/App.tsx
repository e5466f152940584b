/** The frame of all pages: navigation, the one search box, and the page at the address. */

import { signal } from "@preact/signals";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, asError } from "../api/errors";
import { mayAnywhere, session, signOut } from "../api/session";
import { Button } from "../components/Button";
import { Menu } from "../components/Menu";
import { EmptyState, ErrorBox, Loading } from "../components/States";
import { Toasts } from "../components/Toast";
import { KeyHelp } from "./KeyHelp";
import { useKeys } from "./keys";
import { GROUPS, pageAt, pages, type PageProps, type PageRoute, type Params } from "./pages";
import { theme, zone } from "./preferences";
import { go, path, to } from "./router";
import { SignIn } from "./SignIn";
import { useTitle } from "./title";

const showsSearch = signal(false);
const showsKeys = signal(false);
const showsNavigation = signal(false);

export function App() {
  useKeys("Everywhere", [
    { key: "/", about: "Find a table, service, trace, build or page", run: () => (showsSearch.value = true) },
    { key: "Ctrl+k", about: "The same, also while typing", run: () => (showsSearch.value = true), inFields: true },
    { key: "?", about: "List the keys", run: () => (showsKeys.value = true) },
    ...offered()
      .filter((page) => page.nav?.key)
      .map((page) => ({
        key: `g ${page.nav!.key}`,
        about: `Go to ${page.nav!.label}`,
        run: () => go(to(...parts(page))),
      })),
  ]);
  if (session.value === null) return <Loading what="Connecting" />;
  if (!session.value.signed_in) return <SignIn />;
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the page
      </a>
      <TopBar />
      <Navigation />
      <main id="main" tabIndex={-1}>
        <CurrentPage />
      </main>
      <Toasts />
      {showsSearch.value && <LazySearch onClose={() => (showsSearch.value = false)} />}
      {showsKeys.value && <KeyHelp onClose={() => (showsKeys.value = false)} />}
    </>
  );
}

function parts(page: PageRoute): string[] {
  return page.path ? page.path.split("/") : [];
}

function offered(): PageRoute[] {
  return pages
    .filter((page) => page.nav && mayAnywhere(page.needs ?? "read"))
    .sort((left, right) => left.nav!.order - right.nav!.order);
}

function TopBar() {
  const who = session.value;
  return (
    <header class="top-bar">
      <button
        type="button"
        class="button quiet nav-toggle"
        aria-expanded={showsNavigation.value}
        aria-controls="navigation"
        aria-label="Navigation"
        onClick={() => (showsNavigation.value = !showsNavigation.value)}
      >
        ☰
      </button>
      <a class="brand" href={to()}>
        <img src={new URL("favicon.svg", document.baseURI).href} alt="" width="22" height="22" /> Crannog
      </a>
      <button type="button" class="find" onClick={() => (showsSearch.value = true)}>
        <span class="find-text">Find a table, service, trace, build …</span>
        <kbd>/</kbd>
      </button>
      <div class="top-actions">
        <button
          type="button"
          class="button quiet"
          title="Switch between local time and UTC"
          onClick={() => (zone.value = zone.value === "utc" ? "local" : "utc")}
        >
          {zone.value === "utc" ? "UTC" : "Local time"}
        </button>
        <Menu
          kind="quiet"
          label={who?.needs_token ? who.name : "View"}
          items={[
            ...(["system", "light", "dark"] as const).map((each) => ({
              label: `${theme.value === each ? "✓ " : ""}${each === "system" ? "Colours of the system" : each === "light" ? "Light" : "Dark"}`,
              run: () => (theme.value = each),
            })),
            { label: "Keys", run: () => (showsKeys.value = true) },
            { label: "HTTP API", href: to("api", "docs") },
            ...(who?.needs_token ? [{ label: "Sign out", run: () => void signOut() }] : []),
          ]}
        />
      </div>
    </header>
  );
}

function Navigation() {
  const all = offered();
  useEffect(() => {
    showsNavigation.value = false;
  }, [path.value]);
  const item = (page: PageRoute) => {
    const here = path.value === page.path || (page.path !== "" && path.value.startsWith(`${page.path}/`));
    return (
      <li key={page.path}>
        <a href={to(...parts(page))} aria-current={here ? "page" : undefined}>
          {page.nav!.label}
        </a>
      </li>
    );
  };
  return (
    <nav id="navigation" aria-label="Pages" class={showsNavigation.value ? "open" : undefined}>
      <ul>{all.filter((page) => page.nav!.group === "").map(item)}</ul>
      {GROUPS.map((group) => {
        const own = all.filter((page) => page.nav!.group === group);
        return (
          own.length > 0 && (
            <div key={group}>
              <h2>{group}</h2>
              <ul>{own.map(item)}</ul>
            </div>
          )
        );
      })}
      <p class="version">Crannog {session.value?.version}</p>
    </nav>
  );
}

const loaded = new Map<PageRoute, ComponentType<PageProps>>();

function CurrentPage() {
  const found = pageAt(path.value);
  const page = found?.page;
  const [, redraw] = useState(0);
  const [failed, setFailed] = useState<unknown>(null);
  useTitle(page?.title ?? "Not found");
  const ready = page ? loaded.get(page) : undefined;
  const load = () => {
    setFailed(null);
    page?.load().then(
      (module) => {
        loaded.set(page, module.default);
        redraw((before) => before + 1);
      },
      (thrown: unknown) => setFailed(thrown),
    );
  };
  useEffect(() => {
    if (page && !ready) load();
  }, [page]);
  if (!page) {
    return (
      <EmptyState title="There is no such page">
        <p>
          The address may have been cut. <a href={to()}>Go to the home page</a>, or press <kbd>/</kbd> to find
          something.
        </p>
      </EmptyState>
    );
  }
  if (failed) {
    const text = "The page could not be loaded. The server may have been updated or stopped: try again.";
    return <ErrorBox error={new ApiError("page", text, 0)} retry={() => location.reload()} />;
  }
  if (!ready) return <Loading />;
  return (
    <Guarded key={pageKey(page, found.params)}>
      <Placed page={ready} params={found.params} />
    </Guarded>
  );
}

function pageKey(page: PageRoute, params: Params): string {
  return `${page.path} ${Object.values(params).join(" ")}`;
}

function Placed({ page: Page, params }: { page: ComponentType<PageProps>; params: Params }) {
  const first = useRef(true);
  useEffect(() => {
    // A screen reader goes on at the new page; not at the first, where the focus belongs to the document.
    if (firstPage.value) firstPage.value = false;
    else if (first.current) document.getElementById("main")?.focus({ preventScroll: true });
    first.current = false;
  }, []);
  return <Page params={params} />;
}

const firstPage = signal(true);

/** Shows an error of a page instead of nothing. */
class Guarded extends Component<{ children: ComponentChildren }, { thrown: unknown }> {
  override state = { thrown: null as unknown };

  static override getDerivedStateFromError(thrown: unknown) {
    return { thrown };
  }

  override componentDidCatch(thrown: unknown) {
    console.error(thrown);
  }

  override render() {
    if (this.state.thrown === null) return this.props.children;
    return (
      <div class="failed">
        <ErrorBox error={asError(this.state.thrown)} />
        <p>This is an error of the page, not of your data.</p>
        <Button onClick={() => this.setState({ thrown: null })}>Try again</Button>
      </div>
    );
  }
}

function LazySearch({ onClose }: { onClose: () => void }) {
  const [Search, setSearch] = useState<ComponentType<{ onClose: () => void }> | null>(null);
  useEffect(() => {
    void import("./Search").then((module) => setSearch(() => module.Search));
  }, []);
  return Search ? <Search onClose={onClose} /> : null;
}
