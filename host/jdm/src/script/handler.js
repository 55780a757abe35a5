export default ((source,limit,clock,check,lazy)=>{
const G=globalThis,O=Object,define=O.defineProperty,keys=O.keys,isArray=Array.isArray,text=JSON.stringify,Later=Promise,run=eval;
if(G.performance.timeOrigin>limit)throw"weir:rule_time";
let input,used,handler,broken;
// Without a clock, whoever looks for one ends the run, whatever it does about that: the host runs it again with one.
const none=()=>{used=1;throw 0};
let[date,draw]=clock?clock(()=>input):[none,none];
delete G.performance;
delete G.now;
G.console={log(){}};
define(G,"Date",{configurable:true,get:()=>date(),set(value){define(G,"Date",{value,writable:true,configurable:true})}});
Math.random=()=>draw();
const line=e=>+(/<input>:(\d+):/.exec(e.stack)||[0,0])[1];
const words=e=>O(e)!==e?String(e):"message"in e?e.name+": "+e.message+(line(e)?" (near line "+line(e)+")":""):text(e);
// The engine keeps objects of more than 32 fields in no order: give them one.
const settle=v=>{
if(O(v)!==v)return v;
if(isArray(v)){for(let i=0;i<v.length;i++)v[i]=settle(v[i]);return v}
let n=keys(v),o=v;
if(n.length>32){o={};n.sort()}
for(const k of n)o[k]=settle(v[k]);
return o};
try{handler=run('"use strict";'+source+'\n;typeof handler==="undefined"?void 0:handler')}catch(e){broken={words:words(e),line:e instanceof SyntaxError?line(e):0}}
// The engine calls main; a source cannot put its own in its place.
define(G,"main",{writable:false,configurable:false,value:i=>{
if(check)return text({output:{kind:typeof handler,broken},log:[]});
let out,json,why=broken&&broken.words;
try{if(!why){input=settle(i);out=handler(input,lazy?lazy[1]():{moment:G.dayjs,dayjs:G.dayjs,Big:G.Big,env:{}});json=text(out);
why=out instanceof Later?"handler is async, which a function node in the older form cannot be":json===void 0&&"handler returned nothing"}}catch(e){why=words(e)}
if(lazy&&lazy[0]())throw"weir:libraries";
if(used)throw"weir:clock";
if(why)throw why;
return'{"output":'+json+',"log":[]}'}});
// A realm may give the clock when the source has run, and asks whether that has looked for one.
return lazy&&(given=>{if(given){const pair=given(()=>input);date=pair[0];draw=pair[1]}return used})})
