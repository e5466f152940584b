import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

export interface TreeNode {
  id: string;
  label: ComponentChildren;
  href?: string;
  children?: readonly TreeNode[];
}

interface Props {
  label: string;
  nodes: readonly TreeNode[];
  /** The node that is chosen, such as the open table. */
  chosen?: string | undefined;
  /** Whether nodes are open at first. */
  startOpen?: boolean;
}

/** A tree of some hundred nodes: arrows move, open and close; Enter follows a link. */
export function Tree({ label, nodes, chosen, startOpen = true }: Props) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const tree = useRef<HTMLUListElement>(null);
  const isOpen = (node: TreeNode) => (startOpen ? !closed.has(node.id) : opened.has(node.id));
  const toggle = (node: TreeNode) => {
    const [before, set] = startOpen ? [closed, setClosed] : [opened, setOpened];
    const next = new Set(before);
    if (!next.delete(node.id)) next.add(node.id);
    set(next);
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const items = [...(tree.current?.querySelectorAll<HTMLElement>("[role=treeitem]") ?? [])];
    const item = (event.target as HTMLElement).closest<HTMLElement>("[role=treeitem]");
    if (!item) return;
    const at = items.indexOf(item);
    const expanded = item.getAttribute("aria-expanded");
    let next: HTMLElement | undefined | null;
    if (event.key === "ArrowDown") next = items[at + 1];
    else if (event.key === "ArrowUp") next = items[at - 1];
    else if (event.key === "Home") next = items[0];
    else if (event.key === "End") next = items[items.length - 1];
    else if (event.key === "ArrowRight" && expanded === "false") item.querySelector<HTMLElement>(".twist")?.click();
    else if (event.key === "ArrowRight" && expanded === "true") next = items[at + 1];
    else if (event.key === "ArrowLeft" && expanded === "true") item.querySelector<HTMLElement>(".twist")?.click();
    else if (event.key === "ArrowLeft") next = item.parentElement?.closest<HTMLElement>("[role=treeitem]");
    else if (event.key === "Enter") item.querySelector<HTMLElement>(":scope > .tree-row > a")?.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
    next?.focus();
  };

  const draw = (node: TreeNode, level: number) => (
    <li
      key={node.id}
      role="treeitem"
      aria-level={level}
      aria-expanded={node.children ? isOpen(node) : undefined}
      aria-selected={node.id === chosen}
      tabIndex={node.id === (chosen ?? nodes[0]?.id) ? 0 : -1}
    >
      <div class="tree-row" style={{ paddingLeft: `${(level - 1) * 14}px` }}>
        {node.children ? (
          <span class="twist" aria-hidden="true" onClick={() => toggle(node)}>
            {isOpen(node) ? "▾" : "▸"}
          </span>
        ) : (
          <span class="twist" aria-hidden="true" />
        )}
        {node.href !== undefined ? (
          <a href={node.href} tabIndex={-1}>
            {node.label}
          </a>
        ) : (
          <span onClick={() => node.children && toggle(node)}>{node.label}</span>
        )}
      </div>
      {node.children && isOpen(node) && <ul role="group">{node.children.map((child) => draw(child, level + 1))}</ul>}
    </li>
  );

  return (
    <ul class="tree" role="tree" aria-label={label} ref={tree} onKeyDown={onKeyDown}>
      {nodes.map((node) => draw(node, 1))}
    </ul>
  );
}
