// Puts the page together, and again when the ground changes.

drawFigures();
drawLegend();
drawGains();
const repaint = [drawDelivered(), drawRatios()];
drawParts();
drawWaits();
drawStops();
redraw();

function newGround() {
  fills = null;
  drawLegend();
  repaint.forEach((fill) => fill());
  redraw();
}
darkQuery.addEventListener("change", newGround);
new ResizeObserver(() => redraw()).observe(canvas);
// Paper is white: what is on the canvas is drawn anew for it, at once.
window.addEventListener("beforeprint", () => { printing = true; newGround(); draw(); });
window.addEventListener("afterprint", () => { printing = false; newGround(); });
