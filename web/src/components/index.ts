/** The components that pages are made of, each once. */

export * from "./Badge";
export * from "./Button";
export * from "./Code";
export * from "./Combobox";
export * from "./CopyButton";
export * from "./Dialog";
export * from "./Field";
export * from "./GraphView";
export * from "./Grid";
export * from "./Layout";
export * from "./Menu";
export * from "./RangePicker";
export * from "./SavedViews";
export * from "./SendSpans";
export * from "./Sparkline";
export * from "./States";
export * from "./Table";
export * from "./Tabs";
export * from "./TimeChart";
export * from "./Toast";
export * from "./Tree";
export * from "./Values";
export * from "./BuildStatus";
